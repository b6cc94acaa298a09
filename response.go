package msgpush

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A response is an HTTP response that has been read.
type response struct {
	status int
	header http.Header
	body   []byte
	err    error         // why the body is not complete
	buffer *bytes.Buffer // holds body
}

// buffers holds buffers for response bodies. Results of calls do not refer to them.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readResponse reads a response, up to a limit, and closes its body. ctx has the
// timeout of the attempt.
func readResponse(ctx context.Context, resp *http.Response, limit int64) response {
	r := response{status: resp.StatusCode, header: resp.Header, buffer: buffers.Get().(*bytes.Buffer)}
	r.buffer.Reset()
	body := cmp.Or[io.ReadCloser](resp.Body, http.NoBody) // net/http allows nil in the response of a custom transport
	defer body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return r // the body is the connection, which does not end
	}
	_, err := r.buffer.ReadFrom(io.LimitReader(body, limit+1))
	r.body, r.err = r.buffer.Bytes(), timeoutOr(ctx, err)
	if int64(len(r.body)) > limit {
		r.err = fmt.Errorf("%w: the limit is %d bytes (see WithMaxResponseBytes)", errBodyTooLarge, limit)
	}
	return r
}

var errBodyTooLarge = errors.New("the body is too large")
