package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"

	"example.com/msgpush/internal/httpspec"
)

// DialFailed reports whether err means that a connection could not be opened, to the service or to a proxy.
func DialFailed(err error) bool {
	if wraps[*proxyError](err) {
		return true
	}
	opErr, ok := errors.AsType[*net.OpError](err)
	return ok && slices.Contains([]string{"dial", "proxyconnect", "socks connect"}, opErr.Op)
}

// IsPermanent reports whether a request that failed with err, without a complete response, would fail again;
// see msgpush.RetryPolicy. An unknown host is not permanent: in a cluster, a name has no address for seconds
// while its service is deployed.
func IsPermanent(err error) bool {
	if proxyErr, ok := errors.AsType[*proxyError](err); ok {
		return proxyErr.status/100 != 5 && !httpspec.IsRetryable(proxyErr.status)
	}
	for _, matches := range permanentTypes {
		if matches(err) {
			return true
		}
	}
	return false
}

var permanentTypes = []func(error) bool{
	isSchemeMismatch,
	wraps[*tls.CertificateVerificationError],
	wraps[x509.UnknownAuthorityError],
	wraps[x509.HostnameError],
	wraps[x509.CertificateInvalidError],
}

// isSchemeMismatch reports whether err is the error for an HTTP response to an HTTPS request. Unless a
// transport wraps it, http.Client replaces it by [http.ErrSchemeMismatch].
func isSchemeMismatch(err error) bool {
	recordErr, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok && string(recordErr.RecordHeader[:]) == "HTTP/" || errors.Is(err, http.ErrSchemeMismatch)
}

// wraps reports whether err is or wraps an E.
func wraps[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
