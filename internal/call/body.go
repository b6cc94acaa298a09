package call

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"example.com/msgpush/internal/httpspec"
)

var errBodyTooLarge = errors.New("the body is too large")

// readBody reads the body of a response, up to the limit, and replaces it with a *wholeBody. A body of a
// response with HTTP status 2xx that cannot be read is an error. Another response is used as far as its body
// can be read: its status has already decided that the request failed.
func (c *Caller) readBody(s *state, resp *http.Response) error {
	body, err := c.readAll(resp)
	s.size = body.Len()
	if err != nil && httpspec.IsSuccess(resp.StatusCode) {
		return err
	}
	body.isCut = err != nil
	resp.Body = body
	return nil
}

// readAll reads the body of a response, and closes it.
func (c *Caller) readAll(resp *http.Response) (*wholeBody, error) {
	body := bodies.Get().(*wholeBody) // its isReusable is false
	body.Reset()
	body.isCut = false
	if resp.Body == nil { // of a custom transport
		return body, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return body, nil // the body is the connection, which does not end
	}
	_, err := body.ReadFrom(io.LimitReader(resp.Body, c.MaxResponseBytes+1))
	if int64(body.Len()) > c.MaxResponseBytes {
		return body, fmt.Errorf("%w: the limit is %d bytes (see WithMaxResponseBytes)", errBodyTooLarge, c.MaxResponseBytes)
	}
	body.isReusable = err == nil && !c.KeepsInput
	return body, err
}

// A wholeBody is a body that has been read. Its bytes are valid until Close.
type wholeBody struct {
	bytes.Buffer
	// isReusable allows another response to use the buffer after Close. It is false after an error, since the
	// reader of the body may still write to the buffer.
	isReusable bool
	isCut      bool // the end is missing
}

// maxPooled is the capacity of the largest buffer that is kept for another response.
const maxPooled = 512 << 10

var bodies = sync.Pool{New: func() any { return new(wholeBody) }}

// Close makes the buffer available for another response.
func (b *wholeBody) Close() error {
	if b.isReusable && b.Cap() <= maxPooled {
		b.isReusable = false
		bodies.Put(b)
	}
	return nil
}

// isCut reports whether the end of the body of a response of readBody is missing.
func isCut(resp *http.Response) bool { return resp.Body.(*wholeBody).isCut }

// bytesOf returns the bytes of the body of a response of readBody.
func bytesOf(resp *http.Response) []byte { return resp.Body.(*wholeBody).Bytes() }
