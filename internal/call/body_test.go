package call

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadBody(t *testing.T) {
	errCable := errors.New("the cable is cut")
	cut := func() io.Reader { return io.MultiReader(strings.NewReader(`{"co`), iotest.ErrReader(errCable)) }
	long := func(n int) io.Reader { return strings.NewReader(strings.Repeat("x", n)) }
	for name, tt := range map[string]struct {
		status int
		body   io.Reader
		want   string
		size   int
		err    error
	}{
		"complete":                        {200, strings.NewReader("{}"), "{}", 2, nil},
		"as long as the limit":            {200, long(100), strings.Repeat("x", 100), 100, nil},
		"longer than the limit":           {200, long(500), "", 101, errBodyTooLarge},
		"cut":                             {200, cut(), "", 4, errCable},
		"error response longer than that": {404, long(500), strings.Repeat("x", 101), 101, nil},
		"error response that is cut":      {404, cut(), `{"co`, 4, nil},
		"protocol switched":               {101, long(500), "", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, req := newStep(t)
			c.Transport = respond(tt.status, tt.body)
			resp, err := c.send(s, req)
			assert.Equal(t, tt.status, s.resp.StatusCode)
			assert.Equal(t, tt.size, s.size)
			if tt.err != nil {
				assert.Nil(t, resp)
				assert.ErrorIs(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(bytesOf(resp)))
			require.NoError(t, resp.Body.Close())
		})
	}
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestReadBodyClosesBodyOfTransport(t *testing.T) {
	for _, status := range []int{101, 200, 503} {
		c, s, _ := newStep(t)
		body := &closer{Reader: strings.NewReader("{}")}
		require.NoError(t, c.readBody(s, &http.Response{StatusCode: status, Body: body}))
		assert.True(t, body.closed, status)
	}
}

func TestReadBodyAcceptsResponseWithoutBody(t *testing.T) {
	c, s, _ := newStep(t)
	resp := &http.Response{StatusCode: http.StatusServiceUnavailable}
	require.NoError(t, c.readBody(s, resp))
	assert.Empty(t, bytesOf(resp))
	require.NoError(t, resp.Body.Close())
}

// The reader of a body that failed may still write to its buffer, and a decoder may keep its input.
func TestOnlyBufferOfCompleteBodyIsReused(t *testing.T) {
	for name, tt := range map[string]struct {
		body       io.Reader
		keepsInput bool
		want       bool
	}{
		"complete":                     {strings.NewReader("{}"), false, true},
		"cut":                          {iotest.ErrReader(io.ErrUnexpectedEOF), false, false},
		"too long":                     {strings.NewReader(strings.Repeat("x", 101)), false, false},
		"decoder that keeps its input": {strings.NewReader("{}"), true, false},
	} {
		c, _, _ := newStep(t)
		c.KeepsInput = tt.keepsInput
		body, _ := c.readAll(&http.Response{StatusCode: http.StatusNotFound, Body: io.NopCloser(tt.body)})
		assert.Equal(t, tt.want, body.isReusable, name)
		require.NoError(t, body.Close())
		assert.False(t, body.isReusable, "Close has an effect once")
	}
}
