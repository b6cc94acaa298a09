//go:build linux

package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// README.md names only tests that exist, and each fault in docs/reliability.md has one.
func TestDocumentsNameTests(t *testing.T) {
	var tests []string
	for _, pattern := range []string{
		"*_test.go",
		"../simulation/*_test.go",
		"../../*_test.go",
		"../../internal/tests/*_test.go",
	} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllStringSubmatch(read(t, file), -1) {
				tests = append(tests, match[1])
			}
		}
	}
	named := slices.Concat(testsOfFaults...)
	for _, match := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t, "README.md"), -1) {
		named = append(named, match[1])
	}
	for _, name := range named {
		assert.Contains(t, tests, name, "replace %s by the test that now checks the same", name)
	}
	assert.Len(t, testsOfFaults, len(faultRows(t, "../../docs/reliability.md")),
		"name the tests of each fault in docs/reliability.md, in its order")
}

// testsOfFaults names tests of each fault in docs/reliability.md, in the order of its rows.
var testsOfFaults = [][]string{
	// no connection: closed port, unknown host
	{"TestRetriesIfNoConnectionIsMade", "TestDefaultPolicyOutlastsOutage", "TestNginxOutage"},
	// TLS handshake that breaks off or times out
	{"TestRetriesIfTLSHandshakeFails", "TestCutAtEveryOffset"},
	// connection that is lost, and the next one cannot be opened
	{"TestRequestThatIsNotIdempotentIsNotSentTwice", "TestNginxRestartsWithRequestsThatAreNotIdempotent"},
	// HTTP/2 stream that is reset
	{"TestHTTP2FaultsCauseExpectedErrors", "TestRequestThatIsNotIdempotentIsNotAddedAfterResetStream"},
	// certificate not trusted, TLS alert about certificates, versions or protocols
	{"TestTLSFailuresArePermanent", "TestAlertsAboutCertificatesAndProtocolsArePermanent"},
	// HTTP response to an HTTPS request
	{"TestTLSFailuresArePermanent"},
	// any other TLS alert, such as internal_error
	{"TestRetriesRequestDamagedOnEstablishedTLSConnection", "TestNginxRetriesDamagedByte"},
	// connection closed or reset before the response or in its header
	{"TestNetworkFaultsCauseExpectedErrors",
		"TestHTTP2FaultsCauseExpectedErrors", "TestCutAtEveryOffset", "TestFaultsBehindTCPGateway"},
	// idle connection that the server closes when a request reuses it
	{"TestRequestThatIsNotIdempotentIsNotSentTwice", "TestNginx"},
	// HTTP/2 connection that the server ends with GOAWAY
	{"TestGracefullyClosedHTTP2ConnectionsFailNoCall", "TestNginxGoaway"},
	// HTTP/2 connection that has become silent
	{"TestDefaultTransportReplacesSilentHTTP2Connection",
		"TestNginxSuspendedWorker", "TestFirstCallAfterBalancerForgetsConnections"},
	// HTTP/1 connection that has become silent
	{"TestOnlyOneAttemptFailsIfBalancerForgetsIdleConnections",
		"TestFirstCallAfterBalancerForgetsConnections", "TestNginxSuspendedWorkerWithHTTP1"},
	// proxy that rejects CONNECT, transport of NewTransport
	{"TestDefaultTransportReportsStatusOfProxy", "TestWaitAfterRejectedCONNECTIsRetryAfterPlusJitter", "TestTinyproxy"},
	// proxy that rejects CONNECT, another transport
	{"TestOtherTransportsRetryRejectedCONNECT"},
	// SOCKS5 proxy that rejects the password, or the request by a rule
	{"TestRejectionOfSOCKSProxyIsPermanent", "TestSOCKS5Proxy"},
	// retryable HTTP status
	{"TestRetriesOnlyTransientStatuses",
		"TestWaitIsRetryAfterPlusJitter", "TestHAProxy", "TestNginxRateLimit", "TestNginxHerd"},
	// Retry-After longer than MaxWait
	{"TestRetryAfterLongerThanMaxWaitFailsImmediately"},
	// any other HTTP status except 200 and 401
	{"TestNon200StatusWithAnyBodyIsAPIError", "TestNginx"},
	// redirect
	{"TestDoesNotFollowRedirects", "TestRedirectIsPermanentAPIError", "TestNginx"},
	// error code in the envelope
	{"TestErrorResponseMayHaveAnyMembers"},
	// truncated body: shorter than its Content-Length, or chunks without an end
	{"TestNetworkFaultsCauseExpectedErrors", "TestCutAtEveryOffset"},
	// complete HTTP 200 response with JSON that ends too early, or with an empty body
	{"TestNetworkFaultsCauseExpectedErrors", "TestRetryThatSucceedsReturnsData", "TestNginx"},
	// HTML, other invalid JSON, JSON without code, data of another type
	{"TestUndecodableResponseIsDecodeError", "TestFaultsBehindTCPGateway"},
	// missing data; page without list, unless its total is 0; record without any value and without id
	{"TestDataWithoutMembersOfItsTypeIsDecodeError"},
	// broken gzip encoding
	{"TestNetworkFaultsCauseExpectedErrors", "TestFaultsBehindTCPGateway"},
	// body over the limit, such as a gzip bomb
	{"TestLimitsDecompressedBody", "TestReadsAtMostOneByteMoreThanTheLimit", "TestFaultsBehindTCPGateway"},
	// no complete response within the timeout of the attempt
	{"TestAttemptEndsAtTimeoutOrDeadline", "TestToxiproxy"},
	// the context ends, in an attempt or in a wait
	{"TestCallReturnsContextError", "TestCancelledCallsDoNotAffectOthers"},
	// the context ends after a response that is not retried
	{"TestResponseThatIsNotRetriedIsReturnedAfterContextHasEnded"},
	// a retry would begin after the deadline
	{"TestDoesNotRetryIfWaitExceedsDeadline"},
	// the retry quota is used up
	{"TestReturnsFailureImmediatelyWithoutQuota",
		"TestSecondInWhichCallsSucceedReturnsTwentiethOfQuota", "TestDefaultQuotaLimitsLoadOfLastingOutage",
		"TestNginxOutage"},
	// access key rejected: HTTP 401, or a code of WithRejectedKeyCodes
	{"TestReplacesRejectedKeyOnceWithoutWaiting", "TestCallFailsIfNoKeyIsAccepted", "TestNginxKeyRotation"},
	// code 401 or 403 in the envelope, with a key source and without WithRejectedKeyCodes
	{"TestErrorSuggestsRejectedKeyCodes"},
	// source or limiter that returns an error, or a key that no header can hold
	{"TestCallWithoutKeySendsNothing", "TestFailedFetchFailsAllWaitingCallers", "TestLimiterErrorEndsCall"},
	// source or limiter that does not return until the context ends
	{"TestCallReturnsContextError"},
	// fetch of CachedAccessKey that takes over 30 s, even if it ignores its context
	{"TestFetchThatExceedsItsTimeSaysWhoseTimeItWas"},
	// source that returns another key after the wait for the limiter
	{"TestEachAttemptGetsKeyWaitsForLimiterAndGetsKeyAgain", "TestRateLimitHoldsWhileKeysChange"},
}

// docs/reliability.md names only options and fields that exist.
func TestReliabilityNamesExistingAPI(t *testing.T) {
	api := read(t, "../../testdata/api.txt")
	named := regexp.MustCompile("`(?:[*]|RetryPolicy[.])?((?:With|New)?[A-Z]\\w+)`").
		FindAllStringSubmatch(read(t, "../../docs/reliability.md"), -1)
	assert.NotEmpty(t, named)
	// Of net/http or HTTP.
	elsewhere := []string{"TLSClientConfig", "IdleConnTimeout", "CloseIdleConnections", "Authorization", "Cookie"}
	for _, match := range named {
		exists := regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(api)
		assert.True(t, exists || slices.Contains(elsewhere, match[1]),
			"the API has no %s: correct docs/reliability.md or, if net/http or HTTP has it, add it to elsewhere", match[1])
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// faultRows returns the rows of the tables in a file whose first column is "fault".
func faultRows(t *testing.T, file string) []string {
	t.Helper()
	var rows []string
	inTable := false
	for line := range strings.Lines(read(t, file)) {
		inTable = strings.HasPrefix(line, "| fault |") || inTable && strings.HasPrefix(line, "| ")
		if inTable && !strings.HasPrefix(line, "| fault |") && !strings.HasPrefix(line, "| --- ") {
			rows = append(rows, line)
		}
	}
	return rows
}

// If keySearch found no key, a leak would fail no test.
func TestKeySearchFindsKeys(t *testing.T) {
	var search keySearch
	search.addKey("first-key")
	search.addKey("second-key")
	for _, text := range []string{"a text", "access-key: second-key", "first-ke", `"first-key"`} {
		_, _ = search.Write([]byte(text))
	}
	assert.Equal(t, 4, search.texts)
	assert.Equal(t, 2, search.leaks)
}
