package msgpush

// Envelope is the body of a response of the service (docs/interface.md#response-envelope). Code 200 denotes
// success. A call returns its data, if there is any; the type is exported for recorded responses and fake
// servers.
type Envelope[T any] struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
	Data T      `json:"data"`
}
