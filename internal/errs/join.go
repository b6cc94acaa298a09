package errs

import (
	"slices"
	"strings"
)

// Join is like errors.Join, but its text is one line, and it returns a single error unchanged.
func Join(problems ...error) error {
	problems = slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return problems[0]
	}
	return joined(problems)
}

type joined []error

func (e joined) Error() string {
	texts := []string{e[0].Error()}
	for _, err := range e[1:] {
		texts = append(texts, strings.TrimPrefix(err.Error(), "msgpush: "))
	}
	return strings.Join(texts, "; ")
}

func (e joined) Unwrap() []error { return e }
