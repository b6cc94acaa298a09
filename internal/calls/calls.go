// Package calls lists a call of every specified operation, for the tests of this module and of
// the modules in its directory.
package calls

import (
	"context"
	"iter"
	"slices"

	"example.com/msgpush"
)

// A Call holds the methods of one operation behind the same types for all operations, so
// that a test can loop over them.
type Call struct {
	// Operation is the name of the operation, as msgpush.Operation.String returns it.
	Operation string
	// ReadOnly states that the operation changes nothing, so that a test may call it again.
	ReadOnly bool
	// HasData states that a success has data, which Do returns.
	HasData bool
	// Do calls the operation. Of a list, it returns the first page.
	Do func(context.Context, *msgpush.Client) (any, error)
	// List requests a page of a list, and Pages iterates over it. They are nil for other operations.
	List  func(context.Context, *msgpush.Client, msgpush.PageRequest) (any, error)
	Pages func(context.Context, *msgpush.Client, ...msgpush.ListOption) iter.Seq2[any, error]
}

// All lists one Call for each specified operation. A test checks that none is missing. A test
// that may only repeat reads, needs data, or needs List and Pages uses ReadOnly, WithData or
// Lists.
var All = []Call{
	record("MailDetail", func(c *msgpush.Client, ctx context.Context) (*msgpush.MailChannel, error) {
		return c.MailDetail(ctx, "101")
	}),
	list("MPList", (*msgpush.Client).MPChannels),
	list("ForwardRuleList", (*msgpush.Client).ForwardRules),
	list("ForwardLogList", func(c *msgpush.Client) msgpush.Lister[msgpush.ForwardLog] {
		return c.ForwardLogs(msgpush.ForwardLogParams{})
	}),
}

// ReadOnly returns the calls that change nothing.
func ReadOnly() []Call { return with(func(c Call) bool { return c.ReadOnly }) }

// WithData returns the calls that return data.
func WithData() []Call { return with(func(c Call) bool { return c.HasData }) }

// Lists returns the calls of lists.
func Lists() []Call { return with(func(c Call) bool { return c.Pages != nil }) }

func with(property func(Call) bool) []Call {
	return slices.DeleteFunc(slices.Clone(All), func(c Call) bool { return !property(c) })
}

// record returns a Call of an operation that reads a record.
func record[T any](operation string, do func(*msgpush.Client, context.Context) (*T, error)) Call {
	return Call{
		Operation: operation,
		ReadOnly:  true,
		HasData:   true,
		Do:        func(ctx context.Context, c *msgpush.Client) (any, error) { return do(c, ctx) },
	}
}

// list returns a Call of an operation that reads pages. The Fetch function of a Lister calls it.
func list[T any](operation string, lister func(*msgpush.Client) msgpush.Lister[T]) Call {
	return Call{
		Operation: operation,
		ReadOnly:  true,
		HasData:   true,
		Do: func(ctx context.Context, c *msgpush.Client) (any, error) {
			return lister(c).Fetch(ctx, msgpush.PageRequest{})
		},
		List: func(ctx context.Context, c *msgpush.Client, r msgpush.PageRequest) (any, error) {
			return lister(c).Fetch(ctx, r)
		},
		Pages: func(ctx context.Context, c *msgpush.Client, opts ...msgpush.ListOption) iter.Seq2[any, error] {
			return func(yield func(any, error) bool) {
				for page, err := range lister(c).Pages(ctx, opts...) {
					if !yield(page, err) {
						return
					}
				}
			}
		},
	}
}
