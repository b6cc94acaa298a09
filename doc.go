// Package msgpush is a client for the open management interface of a message
// push service: JSON over HTTP, authenticated by an access key.
//
// Create one [Client] with [NewClient] and share it:
//
//	client, err := msgpush.NewClient("https://push.example.com", accessKey)
//	...
//	mail, err := client.MailDetail(ctx, "101")
//
// "The API document" means the service owner's description of the interface. It is
// not part of this module; this documentation refers to its part numbers. Each
// operation that it specifies has a method named after its path. It also names
// operations without a path. Their methods send nothing and return an
// [*UnimplementedError]; [Call] sends a request to any path.
//
// # Lists
//
// A list operation returns one [Page]. [Client.MPAll], [Client.ForwardRuleAll] and
// [Client.ForwardLogAll] iterate over all records of a list, even while the list
// changes; see [Lister.All]. [Client.ForwardLogFollow] delivers the trigger records and
// then each new one; see [Lister.Follow].
//
// # Errors
//
// Unless the arguments are invalid, [errors.As] finds exactly one of these types in
// the error of a call:
//
//   - [*APIError]: the service sent an error response
//   - [*DecodeError]: the service sent a response that cannot be understood, such as data
//     without any field of its type
//   - [*RequestError]: there was no complete response, or the context, the rate
//     limiter or the key source ended the call
//   - [*UnimplementedError]: the API document only names the operation
//
// Invalid arguments cause an error of another type, and nothing is sent. An
// iterator may also yield [ErrInconsistentList] or the error of the context.
//
// # Retries
//
// The methods of Client that read a record or a list are retried according to the
// [RetryPolicy]. So is a [Call] if its [Request] is Idempotent, or if no connection could be
// dialed for it. If the service rejects the access key, any call is retried once
// with another key of the [AccessKeySource]. All calls of a client share a retry quota,
// so that retries do not multiply the load of an outage. No redirect is followed.
//
// A call honours its context, but a response that needs no retry is returned even if the
// context has ended in the meantime. In addition, each attempt has a timeout ([WithTimeout], whose
// documentation states how long a call can take) and each response body a size limit
// ([WithMaxResponseBytes]).
//
// # Attempts
//
// [WithObserver] passes each attempt of a call to a function, with its operation, duration,
// HTTP status, header and error. [WithLogger] logs each attempt.
//
// # Secrets
//
// The access key is sent to the host of the base URL only. It is redacted in error
// texts and log records; see [APIError] for the limits. [Secret] redacts the
// passwords of mail channels.
//
// Package [example.com/msgpush/msgpushtest] is a fake server for tests.
package msgpush
