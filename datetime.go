package msgpush

import (
	"errors"
	"fmt"
	"time"
)

// A DateTime is a date and time as the service sends it, in the format
// YYYY-MM-DD HH:MM:SS. The document does not say in which time zone.
type DateTime string

// Time returns the time that d is in loc, the zone that the caller knows the
// service to use. It returns an error where d is empty or not in the document's
// format, and where loc is nil.
func (d DateTime) Time(loc *time.Location) (time.Time, error) {
	if loc == nil {
		return time.Time{}, errors.New("msgpush: DateTime.Time: the location is nil; the document gives no zone, so the caller must")
	}
	t, err := time.ParseInLocation(time.DateTime, string(d), loc)
	if err != nil || !d.isExact() {
		return time.Time{}, fmt.Errorf("msgpush: DateTime.Time: %q is not a date and time in the format YYYY-MM-DD HH:MM:SS", excerpt(string(d)))
	}
	return t, nil
}

// isExact reports whether d is in the format to the byte. Package time also takes
// shorter hours, a space in them, and longer seconds. It is asked in UTC, since
// elsewhere a clock may be put forward over the time that d is.
func (d DateTime) isExact() bool {
	t, err := time.Parse(time.DateTime, string(d))
	return err == nil && t.Format(time.DateTime) == string(d)
}
