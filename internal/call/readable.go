package call

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"example.com/msgpush/internal/redact"
)

const maxHeader = 40 // characters of a value that are quoted

// checkCharset returns an error if a body is not UTF-8, and its header names another charset.
func checkCharset(resp *http.Response, body []byte, keys *redact.Keys) error {
	if utf8.Valid(body) && !bytes.Contains(body, []byte{0}) { // UTF-16 of ASCII is valid UTF-8
		return nil
	}
	_, params, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	charset := params["charset"]
	isUTF8 := strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
	if charset == "" || isUTF8 {
		return nil
	}
	return fmt.Errorf("the body is not UTF-8: its charset is %q", redact.Shorten(keys.Text(charset), maxHeader))
}

// checkEncoding returns an error if a response has a Content-Encoding: net/http removes that header when it
// decodes a body. Some responses have the header although their body is plain JSON.
func checkEncoding(resp *http.Response, keys *redact.Keys) error {
	encoding := resp.Header.Get("Content-Encoding")
	if encoding == "" {
		return nil
	}
	encoding = redact.Shorten(keys.Text(encoding), maxHeader)
	return fmt.Errorf("the body has the Content-Encoding %q, which the client does not decode", encoding)
}
