package transport

import (
	"compress/flate"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"strings"

	"example.com/msgpush/internal/errs"
	"example.com/msgpush/internal/httpspec"
)

// DialFailed reports whether err means that a connection could not be opened, to the service or to
// a proxy.
func DialFailed(err error) bool {
	if errs.Matches[*proxyError](err) {
		return true
	}
	opErr, ok := errs.As[*net.OpError](err)
	return ok && slices.Contains([]string{"dial", "proxyconnect", "socks connect"}, opErr.Op)
}

// IsPermanent reports whether a request that failed with err, without a complete response, would
// fail again; see msgpush.RetryPolicy.
func IsPermanent(err error) bool {
	if proxyErr, ok := errs.As[*proxyError](err); ok {
		return proxyErr.status/100 != 5 && !httpspec.IsRetryable(proxyErr.status)
	}
	opErr, ok := errs.As[*net.OpError](err)
	if ok && opErr.Op == "proxyconnect" {
		opErr, ok = errs.As[*net.OpError](opErr.Err) // of the TLS handshake with the proxy, or of dialing it
	}
	if ok && opErr.Op == "remote error" { // crypto/tls: the peer sent an alert
		return isPermanentAlert(opErr.Err)
	}
	if ok && opErr.Op == "socks connect" {
		return isPermanentSOCKSError(opErr.Err)
	}
	for _, permanent := range permanentErrors {
		if errs.Is(err, permanent) {
			return true
		}
	}
	for _, matches := range permanentTypes {
		if matches(err) {
			return true
		}
	}
	return false
}

var permanentErrors = []error{http.ErrSchemeMismatch, gzip.ErrHeader, gzip.ErrChecksum}

var permanentTypes = []func(error) bool{
	errs.Matches[flate.CorruptInputError],
	errs.Matches[*tls.CertificateVerificationError],
	errs.Matches[x509.UnknownAuthorityError],
	errs.Matches[x509.HostnameError],
	errs.Matches[x509.CertificateInvalidError],
}

// isPermanentAlert reports whether err is one of permanentAlerts. After another TLS alert, such as
// internal_error, a retry may help.
func isPermanentAlert(err error) bool {
	return slices.ContainsFunc(permanentAlerts, func(alert tls.AlertError) bool {
		return errs.Text(err) == alert.Error() // the type of the error is not exported
	})
}

var permanentAlerts = []tls.AlertError{
	40,  // handshake_failure
	42,  // bad_certificate
	43,  // unsupported_certificate
	44,  // certificate_revoked
	45,  // certificate_expired
	46,  // certificate_unknown
	47,  // illegal_parameter
	48,  // unknown_ca
	49,  // access_denied
	70,  // protocol_version
	71,  // insufficient_security
	86,  // inappropriate_fallback
	112, // unrecognized_name
	116, // certificate_required
	120, // no_application_protocol
}

// isPermanentSOCKSError reports whether a SOCKS5 proxy rejected the login or the destination, or
// whether the login has an invalid length. The errors of net/http have no type.
func isPermanentSOCKSError(err error) bool {
	return slices.ContainsFunc(permanentSOCKSErrors, func(end string) bool {
		return strings.HasSuffix(errs.Text(err), end)
	})
}

var permanentSOCKSErrors = []string{
	"invalid username/password",
	"authentication failed",
	"no acceptable authentication methods",
	"connection not allowed by ruleset",
}
