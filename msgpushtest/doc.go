// Package msgpushtest provides a fake server of the message push service for tests. It needs no account of
// the service, and no network except loopback.
//
// A [Server] implements the operations that the API document (see package msgpush) specifies, on the
// [Records] that a test sets:
//
//	func TestRules(t *testing.T) {
//		srv := msgpushtest.New(t) // closed when the test ends
//		srv.SetRecords(msgpushtest.SampleRecords())
//		page, err := srv.Client().ForwardRuleList(t.Context(), msgpush.PageRequest{})
//		...
//	}
//
// # Failures
//
// [Server.Inject] makes the server respond to one or more requests with a [Fault], such as an error response,
// a connection that breaks or an HTML page. [Respond] calls a handler, for example for an operation that the
// server does not know. A test with a server of [New] fails if a fault was used too seldom and not cleared,
// or if a function of [Server.UpdateBetweenPages] was never called: otherwise, a test in which they had no
// effect could pass.
//
// # Virtual time
//
// A server with the option [InMemory] works inside a testing/synctest bubble, where a day of waiting takes
// almost no real time. Make the server inside the bubble, with the bubble's t, and use it only there:
// otherwise, the runtime ends the program with an error such as "receive on synctest channel from outside
// bubble".
//
// The clock of a bubble starts on 2000-01-01. A follower of package follow ignores creation times that are
// more than two days ahead of it, as in [SampleRecords], and finds the order of a list by the ids.
//
// # Choices of the fake server
//
// The real service may behave differently.
//
//   - An error response has HTTP status 200, one of the Code constants as its code, and no data.
//   - current defaults to 1, and pageSize to [msgpush.DefaultPageSize]. A 0 counts as missing.
//   - If params is missing, the trigger records are not filtered.
//   - Members and query parameters that the API document does not show are rejected, and so is a GET with a
//     body. The letter case of a member is ignored, and null counts as missing.
//   - A page after the last has an empty list and the requested page number.
package msgpushtest
