package msgpush

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
)

// A response is an HTTP response that has been read.
type response struct {
	status int
	header http.Header
	body   []byte
	err    error // why the body is not complete
}

// readResponse reads a response into buf, up to the limit, and closes its body.
func readResponse(resp *http.Response, buf *bytes.Buffer, limit int64) response {
	defer resp.Body.Close()
	r := response{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return r // the body is the connection, which does not end
	}
	_, r.err = buf.ReadFrom(io.LimitReader(resp.Body, limit+1))
	r.body = buf.Bytes()
	if int64(len(r.body)) > limit {
		r.err = fmt.Errorf("%w: the limit is %d bytes (see WithMaxResponseBytes)", errBodyTooLarge, limit)
	}
	return r
}

var errBodyTooLarge = errors.New("the body is too large")

// retryAfter parses the Retry-After header, which holds seconds or an HTTP date.
// A date in the past is 0. It also reports whether the value is valid.
func retryAfter(header http.Header) (time.Duration, bool) {
	v := header.Get("Retry-After")
	if date, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(date)), true
	}
	seconds, err := strconv.ParseUint(v, 10, 64)
	switch {
	case err == nil && seconds <= uint64(math.MaxInt64/time.Second):
		return time.Duration(seconds) * time.Second, true
	case seconds > 0: // overflows a Duration or, with ErrRange, a uint64
		return math.MaxInt64, true
	default:
		return 0, false
	}
}
