// Package httpspec has details of HTTP that other packages share: paths, header values, statuses and
// Retry-After. It knows neither requests nor responses.
package httpspec

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// CheckPath returns an error for a path that has an invalid escape or a control character, or that a server
// or proxy may resolve to another directory or host. It decodes escapes once.
func CheckPath(path string) error {
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return errors.New("has an invalid percent escape")
	case strings.ContainsFunc(decoded, unicode.IsControl):
		return errors.New("must not have control characters")
	case hostPrefix.MatchString(decoded):
		return errors.New("must not begin with two slashes, after which some servers expect a host")
	case dotSegment.MatchString(decoded):
		return errors.New(`must not have a "." or ".." segment`)
	}
	return nil
}

// Some servers also split segments at a backslash, and cut them at a semicolon or at an escaped question mark
// or number sign.
var (
	hostPrefix = regexp.MustCompile(`^[/\\]{2}`)
	dotSegment = regexp.MustCompile(`(^|[/\\])\.\.?([/\\;?#]|$)`)
)

// EscapePath escapes the characters that net/url does not accept in an escaped path, except ? and
// #, and keeps existing escapes. net/url would decode all escapes of a path that has such a
// character.
func EscapePath(path string) string {
	return notInPath.ReplaceAllStringFunc(path, url.PathEscape)
}

var notInPath = regexp.MustCompile("[^!-~]|[\"<>\\\\^`{|}]")

// CheckHeaderValue returns an error if v is empty or not UTF-8, has an ASCII control character,
// even a tab, or begins or ends with a space. The error does not quote v.
func CheckHeaderValue(name, v string) error {
	control := strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f })
	switch {
	case v == "":
		return fmt.Errorf("%s is empty", name)
	case !utf8.ValidString(v):
		return fmt.Errorf("%s is not valid UTF-8", name)
	case control >= 0:
		return fmt.Errorf("%s has a control character at byte %d, such as a line break or a tab", name, control)
	case strings.Trim(v, " ") != v:
		return fmt.Errorf("%s begins or ends with a space, which HTTP removes from a header", name)
	}
	return nil
}

// CheckKey returns an error if an access key is not a valid header value, or has a character that is
// invisible, and was probably pasted with the key.
func CheckKey(name, key string) error {
	if err := CheckHeaderValue(name, key); err != nil {
		return err
	}
	invisible := strings.IndexFunc(key, func(r rune) bool {
		isSpace := unicode.IsSpace(r) && r != ' '
		return isSpace || unicode.Is(unicode.Cf, r)
	})
	if invisible >= 0 {
		const format = "%s has an invisible character at byte %d, such as a byte order mark or a no-break space"
		return fmt.Errorf(format, name, invisible)
	}
	return nil
}

// StatusText returns an HTTP status as error texts show it.
func StatusText(status int) string {
	name := http.StatusText(status)
	if status == http.StatusOK || name == "" {
		return fmt.Sprintf("HTTP %d", status)
	}
	return fmt.Sprintf("HTTP %d %s", status, name)
}

// IsSuccess reports whether an HTTP status is 2xx.
func IsSuccess(status int) bool { return status/100 == 2 }

// IsRetryable reports whether a response with an HTTP status is worth a retry.
func IsRetryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 520, 521, 522, 523, 524, 529, 530: // of gateways that do not reach the service, or are overloaded
		return true
	}
	return false
}

// RetryAfter parses the Retry-After header, which holds seconds, perhaps with a fraction, or an HTTP
// date. The wait until a date begins at the Date header or, without one, now: the clock of the
// service may differ. A date in the past is 0. RetryAfter also reports whether the value is valid.
func RetryAfter(header http.Header) (time.Duration, bool) {
	v := header.Get("Retry-After")
	if seconds.MatchString(v) {
		wait, err := time.ParseDuration(v + "s")
		if err != nil { // longer than the longest Duration
			return math.MaxInt64, true
		}
		return wait, true
	}
	date, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, date.Sub(now)), true
}

var seconds = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
