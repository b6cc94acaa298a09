package httpspec_test

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"example.com/msgpush/internal/httpspec"
)

func TestCheckPath(t *testing.T) {
	const dots, slashes, control, escape = `"."`, "two slashes", "control", "escape"
	for _, tt := range []struct{ name, path, want string }{
		{"empty", "", ""},
		{"segments", "/a/b", ""},
		{"escaped slash and number sign", "/a%2Fb%23c/ü", ""},
		{"two slashes inside", "/a//b", ""},
		{"dots in segments", "/.well-known/a..b/...//..c/d../a.", ""},
		{"parameter", "/a;c=d", ""},
		{"two percent signs, which decode once to an escape", "/%252e%252e/", ""},

		{"dot-dot segment", "/a/../b", dots},
		{"escaped dot-dot segment", "/a/%2e%2E/b", dots},
		{"dot-dot segment after an escaped slash", "/a%2f..%2fb", dots},
		{"dot-dot segment after a backslash", `/a\..\b`, dots},
		{"dot-dot segment with a parameter", "/a/..;x=y/b", dots},
		{"dot-dot segment before an escaped number sign", "/..%23", dots},
		{"dot-dot segment before an escaped question mark", "/..%3Fx", dots},
		{"dot-dot segment at the start", "../a", dots},
		{"dot segment", "/a/./b", dots},
		{"dot segment at the end", "/a/.", dots},
		{"escaped dot segment", "/%2e//x", dots},

		{"two slashes at the start", "//evil.example/a", slashes},
		{"escaped slash at the start", "/%2Fevil.example/a", slashes},
		{"slash and backslash at the start", `/\evil.example/a`, slashes},
		{"two backslashes at the start", `\\evil.example/a`, slashes},

		{"line break", "/a\r\nX: y", control},
		{"escaped line break", "/a%0d%0aX", control},
		{"escaped control character that is not ASCII", "/a%C2%85", control},
		{"escape that is not hexadecimal", "/a%zz", escape},
		{"cut escape", "/a%2", escape},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := httpspec.CheckPath(tt.path)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "evil.example")
		})
	}
}

func TestEscapePath(t *testing.T) {
	for path, want := range map[string]string{
		"":                    "",
		"/a/b;c=d":            "/a/b;c=d",
		"/a%2fb%5Cc/ü":        "/a%2fb%5Cc/%C3%BC",
		"/推送 a:b~!":           "/%E6%8E%A8%E9%80%81%20a:b~!",
		"/<a>\"{b}|^`\\":      "/%3Ca%3E%22%7Bb%7D%7C%5E%60%5C",
		"/a?b#c":              "/a?b#c",
		"/a\x7f\n":            "/a%7F%0A",
		"/[]@$&'()*+,=-._%25": "/[]@$&'()*+,=-._%25",
	} {
		assert.Equal(t, want, httpspec.EscapePath(path), path)
	}
}

func TestCheckHeaderValue(t *testing.T) {
	const control = "the key has a control character at byte "
	for _, tt := range []struct{ name, value, want string }{
		{"letters", "secret", ""},
		{"space inside", "secret x", ""},
		{"text that is not ASCII", "grüße 密钥\u0085", ""},
		{"last character before DEL", "~", ""},
		{"empty", "", "the key is empty"},
		{"line break at the start", "\nsecret", control + "0"},
		{"line break at the end", "secret\n", control + "6"},
		{"second header", "secret\r\nX-Evil: 1", control + "6"},
		{"DEL", "secret\x7f", control + "6"},
		{"tab", "secret\tx", control + "6"},
		{"last control character before the space", "secret\x1f", control + "6"},
		{"space before", " secret", "the key begins or ends with a space"},
		{"space after", "secret ", "the key begins or ends with a space"},
		{"bytes that are not UTF-8", "secret\xff", "the key is not valid UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := httpspec.CheckHeaderValue("the key", tt.value)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestStatusText(t *testing.T) {
	assert.Equal(t, "HTTP 200", httpspec.StatusText(200), "an error names HTTP 200 only because of its body")
	assert.Equal(t, "HTTP 201 Created", httpspec.StatusText(201))
	assert.Equal(t, "HTTP 503 Service Unavailable", httpspec.StatusText(503))
	assert.Equal(t, "HTTP 599", httpspec.StatusText(599))
}

func TestIsRetryable(t *testing.T) {
	retryable := []int{408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530}
	for status := range 600 {
		assert.Equal(t, slices.Contains(retryable, status), httpspec.IsRetryable(status), "%d", status)
	}
}

// Virtual time begins at 2000-01-01 00:00:00.
func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  time.Duration
		valid bool
	}{
		{"120", 2 * time.Minute, true},
		{"0", 0, true},
		{"9223372036", 9223372036 * time.Second, true},
		{"9223372037", math.MaxInt64, true}, // more seconds than a Duration holds
		{strings.Repeat("9", 40), math.MaxInt64, true},
		{"Sat, 01 Jan 2000 01:00:00 GMT", time.Hour, true},
		{"Fri, 31 Dec 1999 23:00:00 GMT", 0, true},
		{"-5", 0, false},
		{"1.5", 1500 * time.Millisecond, true},
		{"299.997", 299997 * time.Millisecond, true},
		{"0.0000000001", 0, true},
		{"9223372037.5", math.MaxInt64, true},
		{"-1.5", 0, false},
		{"+1", 0, false},
		{"1.", 0, false},
		{".5", 0, false},
		{"1.5.5", 0, false},
		{"1e3", 0, false},
		{"1s", 0, false},
		{"1m2", 0, false},
		{"inf", 0, false},
		{"soon", 0, false},
		{"", 0, false},
	} {
		t.Run(tt.value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wait, ok := httpspec.RetryAfter(http.Header{"Retry-After": {tt.value}})
				assert.Equal(t, fmt.Sprint(tt.want, tt.valid), fmt.Sprint(wait, ok))
			})
		})
	}
	wait, ok := httpspec.RetryAfter(nil)
	assert.Zero(t, wait)
	assert.False(t, ok)
}

// The clock of the service may differ from the local one, which shows the year 2000 here.
func TestRetryAfterDateIsMeasuredFromDateHeader(t *testing.T) {
	for name, tt := range map[string]struct {
		date string // the Date header; empty: none
		want time.Duration
	}{
		"no Date header":       {"", 31 * time.Minute},
		"clock that is behind": {"Sat, 01 Jan 2000 00:30:00 GMT", time.Minute},
		"clock that is ahead":  {"Sat, 01 Jan 2000 00:32:00 GMT", 0},
		"invalid Date header":  {"today", 31 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				header := http.Header{"Retry-After": {"Sat, 01 Jan 2000 00:31:00 GMT"}}
				if tt.date != "" {
					header.Set("Date", tt.date)
				}
				wait, ok := httpspec.RetryAfter(header)
				assert.True(t, ok)
				assert.Equal(t, tt.want, wait)
			})
		})
	}
}
