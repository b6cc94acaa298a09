// Package msgpush is a client for the open management interface of a message push service: JSON over HTTP,
// authenticated by an access key.
//
// Create one [Client] with [NewClient] and share it:
//
//	client, err := msgpush.NewClient("https://push.example.com", accessKey)
//	...
//	mail, err := client.MailDetail(ctx, "101")
//
// "The API document" is the service owner's description of the interface. docs/interface.md summarizes it:
// like every path in these comments, this is a file of the module. Each operation that the API document
// specifies has a method named after its path. The methods of [UnimplementedOperations], which it only names,
// send nothing and return an [*UnimplementedError]. [Call] sends requests to other paths.
//
// # Lists
//
// A list operation returns one [Page]. Each list also has a method that returns a [Pager], such as
// [Client.ForwardRulePager]. Its method All iterates over all records, even while the list changes. Package
// [example.com/msgpush/follow] also delivers each new record.
//
// # Errors
//
// Unless the arguments are invalid, [errors.As] finds exactly one of these types in the error of a call:
// [*APIError], [*DecodeError], [*RequestError] or, if the API document only names the operation,
// [*UnimplementedError]. Invalid arguments cause an error of another type, and nothing is sent.
//
// # Retries
//
// The methods of Client that read a record or a list are retried according to the [RetryPolicy], and so is a
// [Call] whose [Request] is Idempotent. No redirect is followed. A call honours its context, but returns a
// response that needs no retry even if its context has ended meanwhile. In addition, a call and each of its
// attempts have a timeout ([WithTimeout], [WithAttemptTimeout]), and each response body has a size limit
// ([WithMaxResponseBytes]).
//
// # Secrets
//
// The access key is sent to the host of the base URL only. It is redacted in error texts and log records; see
// [APIError] for the limits. [Secret] redacts the passwords of mail channels. [AccessKeyFile] and
// [CachedAccessKey] get a key that may be replaced.
//
// # Observing
//
// [WithLogger] logs each attempt. [WithObserver] and [WithCallObserver] call a function after each attempt and
// each call, for example for metrics: [Outcome] returns a label. A transport learns the operation by
// [OperationFromContext].
//
// Package [example.com/msgpush/msgpushtest] is a fake server for tests.
package msgpush
