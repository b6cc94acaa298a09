// Package msgpush is a client for the open management interface of a message
// push service: JSON over HTTP, authenticated by an access key.
//
// Make one [Client] with [NewClient] and share it:
//
//	client, err := msgpush.NewClient("https://push.example.com", accessKey)
//	...
//	mail, err := client.MailDetail(ctx, "101")
//
// "The API document" below is the service owner's description of the interface. It
// is not part of this module; this documentation gives its part numbers. The API
// document specifies four operations, which have a method each, named after the
// path. It names sixteen more without a path. Their methods send nothing and return
// an [*UnimplementedError]; [Call] sends any request.
//
// # Lists
//
// A list operation returns one [Page]. [Client.MPAll], [Client.ForwardRuleAll] and
// [Client.ForwardLogAll] iterate over all records of a list, also while the list
// changes; [Lister.All] states the promises.
//
// # Errors
//
// Unless the arguments are invalid, [errors.As] finds exactly one of these types in
// the error of a call:
//
//   - [*APIError]: the service rejected the call
//   - [*DecodeError]: the service sent a response that cannot be understood
//   - [*RequestError]: there was no complete response, or no request was sent
//   - [*UnimplementedError]: the API document only names the operation
//
// An error about invalid arguments is of another type, and nothing was sent.
//
// # Retries
//
// The four specified operations only read data, so they are retried as the
// [RetryPolicy] says. A [Call] is retried if its [Request] is Idempotent, or if no
// connection was made. All calls of a client share a retry quota, so that retries
// do not multiply the load of an outage. No redirect is followed.
//
// A call honours its context. In addition, each attempt has a timeout
// ([WithTimeout]) and each response body a size limit ([WithMaxResponseBytes]).
//
// # Secrets
//
// The access key is sent to the host of the base URL only. No error text and no log
// record contains it. [Secret] hides the passwords of mail channels.
//
// Package [example.com/msgpush/msgpushtest] is a fake server for tests.
package msgpush
