package msgpush

import (
	"errors"
	"fmt"
	"time"

	"example.com/msgpush/internal/redact"
)

// A DateTime is a date and time as the service sends it, in the format YYYY-MM-DD HH:MM:SS. The API document
// does not specify a time zone.
type DateTime string

// Time returns d as a time in loc, the time zone of the service. It returns an error if d is not a valid
// DateTime, or if loc is nil.
func (d DateTime) Time(loc *time.Location) (time.Time, error) {
	if loc == nil {
		return time.Time{}, errors.New("msgpush: DateTime.Time: the location is nil: pass the time zone of the service")
	}
	t, err := time.ParseInLocation(time.DateTime, string(d), loc)
	// Package time also accepts other formats, such as one-digit hours or fractions of a second. They are
	// detected in UTC, since in another time zone a clock change may skip d.
	utc, _ := time.Parse(time.DateTime, string(d))
	if err != nil || utc.Format(time.DateTime) != string(d) {
		excerpt := redact.Shorten(string(d), maxExcerpt)
		return time.Time{}, fmt.Errorf("msgpush: DateTime.Time: %q is not in the format YYYY-MM-DD HH:MM:SS", excerpt)
	}
	return t, nil
}
