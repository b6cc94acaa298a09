package call

import (
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"
)

// checkCharset returns an error if a body is not UTF-8, and its header names another charset.
func checkCharset(header http.Header, body []byte) error {
	contentType := header.Get("Content-Type")
	isUsual := !strings.Contains(contentType, "=") || hasSuffixFold(contentType, "utf-8")
	if isUsual || utf8.Valid(body) {
		return nil
	}
	_, params, _ := mime.ParseMediaType(contentType)
	charset := params["charset"]
	if charset == "" || strings.EqualFold(charset, "utf-8") {
		return nil
	}
	return fmt.Errorf("the body is not UTF-8: its charset is %.40q", charset)
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

// checkEncoding returns an error if a body is not JSON, and has a Content-Encoding: net/http removes
// that header when it decodes a body.
func checkEncoding(header http.Header, jsonErr error) error {
	encoding := header.Get("Content-Encoding")
	if encoding == "" || jsonErr == nil {
		return nil
	}
	return fmt.Errorf("the body has the Content-Encoding %.40q, which the client does not decode", encoding)
}
