package cli

import (
	"flag"
	"strconv"

	"example.com/msgpush"
)

// ForwardLogFlags defines the flags that filter trigger records.
func ForwardLogFlags(params *msgpush.ForwardLogParams) {
	flag.Func("rule", "only records of the rule with this `ID`, which may be 0", func(value string) error {
		id, err := strconv.ParseInt(value, 10, 64)
		params.RuleID = &id
		return err
	})
	flag.Func("match-result", "only records with this match result `CODE`, which may be 0", func(value string) error {
		code, err := strconv.Atoi(value)
		params.MatchResult = &code
		return err
	})
}
