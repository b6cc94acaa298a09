// Package msgpushtest provides a fake server of the message push service for tests.
// It needs no account of the service, and no network except loopback.
//
// A [Server] implements the operations that the API document (see package msgpush)
// specifies, on the [Records] that a test sets:
//
//	func TestRules(t *testing.T) {
//		srv := msgpushtest.New(t) // closed when the test ends
//		srv.SetRecords(msgpushtest.SampleRecords())
//		page, err := srv.Client().ForwardRuleList(t.Context(), msgpush.PageRequest{})
//		...
//	}
//
// A program uses [NewServer] and [Server.Close] instead of [New].
//
// # Failures
//
// [Server.Inject] makes the server respond to one request, or to all, with a
// [Fault], such as an error response, a connection that breaks or an HTML page.
// [Fault.For] and [Fault.If] limit a fault to some requests. [Respond] calls a handler, for
// example for an operation that the server does not know.
// [Server.SetLatency], [Server.SetRateLimit] and [Server.SetKeyLifetime] set a
// latency, a rate limit and an access key that expires. [Server.UpdateBetweenPages] sets a
// function that changes a list while a client iterates over it.
//
// [Server.Requests] returns the requests that arrived. [Server.WaitForRequest] waits
// for one, and [Server.OnRequest] sets a function that is called for each.
//
// A test with a server of [New] fails if a fault was neither used nor cleared. Otherwise, a
// test whose fault had no effect could pass. The test also fails if a function that the server
// calls panics, and if something waits for five seconds; see [New].
//
// # Access keys
//
// [Server.SetAccessKey] replaces the accepted key. The old key is then rejected. By default,
// a client of [Server.Client] keeps its key, so its calls fail after SetAccessKey. In a test
// of a key rotation, the client takes its key from a source:
//
//	keys := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
//		return srv.AccessKey(), time.Time{}, nil // your key service
//	}, 0)
//	client := srv.Client(msgpush.WithAccessKeySource(keys))
//	...
//	srv.SetAccessKey("the-second-key")
//
// A key is rejected with the code [CodeAccessKey]. Code under test that calls
// [msgpush.NewClient] itself needs [msgpush.WithRejectedKeyCodes] with this code:
// [Server.Client] sets it, and the default of NewClient is none.
//
// # Virtual time
//
// A server with the option [InMemory] works inside a [testing/synctest] bubble,
// where a day of waiting takes no real time:
//
//	synctest.Test(t, func(t *testing.T) {
//		srv := msgpushtest.New(t, msgpushtest.InMemory())
//		client := srv.Client()
//		for range 24 * 60 {
//			page, err := client.ForwardLogList(t.Context(), msgpush.ForwardLogRequest{})
//			...
//			time.Sleep(time.Minute)
//		}
//	})
//
// Make the server inside the bubble, with the bubble's t, and use it only there: elsewhere,
// [Server.Client] and [Server.HTTPClient] panic. After the bubble has ended, [Server.Requests] and
// [Server.Records] still work. Code that calls [msgpush.NewClient] itself must pass the result of
// [Server.HTTPClient] to [msgpush.WithHTTPClient].
//
// A background fetch of [msgpush.CachedAccessKey] must have ended when the test
// function returns, or synctest panics: let the test sleep longer than a fetch takes.
//
// The file docs/testing.md of the module has tests to copy, such as one of an outage, of a key
// rotation, or of a day of polling. This command prints the directory of the module:
//
//	go list -m -f '{{.Dir}}' example.com/msgpush
//
// # Choices of the fake server
//
// The API document does not show error codes and defaults. The fake server makes the
// following choices. The real service may behave differently.
//
//   - An error response has HTTP status 200, or 429 if the rate limit is exceeded. It has
//     one of the Code constants as its code, and no data.
//   - current defaults to 1, and pageSize to [msgpush.DefaultPageSize]. Values
//     below 1 or above [math.MaxInt32] are rejected.
//   - If params is missing, the trigger records are not filtered. A missing member
//     of params does not filter.
//   - Members and query parameters that the API document does not show are
//     rejected, and so are null values and a GET with a body.
//   - A page after the last has an empty list and the requested page number.
//   - Records are listed in the order that they have in [Records].
package msgpushtest
