package call

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeepRedirectPassesMalformedLocationAroundHTTPClient(t *testing.T) {
	for name, tt := range map[string]struct {
		status   int
		location string
		isError  bool
	}{
		"redirect":                             {302, "/login", false},
		"redirect without a Location":          {302, "", false},
		"redirect with a malformed Location":   {302, "http://[broken", true},
		"another status, malformed Location":   {201, "http://[broken", false},
		"last redirect status, malformed":      {399, "::", true},
		"client error with malformed Location": {400, "::", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, req := newStep(t)
			resp := &http.Response{StatusCode: tt.status, Header: http.Header{"Location": {tt.location}}}
			resp, err := keepRedirect(req, resp) //nolint:bodyclose // empty
			if tt.isError {
				assert.Nil(t, resp)
				require.ErrorAs(t, err, new(*redirectError))
				err = &url.Error{Err: err}         // of http.Client
				resp, err = unwrapClient(nil, err) //nolint:bodyclose // in memory
			}
			require.NoError(t, err)
			assert.Equal(t, tt.status, resp.StatusCode)
			assert.Equal(t, tt.location, resp.Header.Get("Location"))
		})
	}
}

func TestUnwrapClientReturnsErrorOfAttempt(t *testing.T) {
	errCable := errors.New("the cable is cut")
	ofTransport := &url.Error{Err: errCable}
	resp, err := unwrapClient(nil, &url.Error{Err: ofTransport}) //nolint:bodyclose // there is none
	assert.Nil(t, resp)
	assert.Equal(t, ofTransport, err, "only the error of http.Client is unwrapped")
	want := new(http.Response)
	resp, err = unwrapClient(want, nil) //nolint:bodyclose // in memory
	assert.Same(t, want, resp)
	assert.NoError(t, err)
	_, err = unwrapClient(nil, errCable) //nolint:bodyclose // there is none
	assert.Equal(t, errCable, err)
}
