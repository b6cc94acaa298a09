// Package testcalls derives a call of every specified operation from [msgpush.Operations], so that the tests
// of this module, and of the modules in its directory, include each operation. It knows no operation by name.
package testcalls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

// A Call holds the methods of one operation behind the same types for all operations, so that a test can loop
// over them.
type Call struct {
	// Operation is the name of the operation, as msgpush.Operation.String returns it.
	Operation string
	// Do calls the operation with arguments that the fake server accepts with its sample records. Of a
	// list, it returns the first page.
	Do func(context.Context, *msgpush.Client) (any, error)
	// Data is the type that a success returns a pointer to, such as msgpush.MailChannel, or nil.
	Data reflect.Type
	// Body is the type of the struct that describes the request, such as msgpush.PageRequest, or nil.
	Body reflect.Type
	// List requests a page of a list. Pages iterates over it, with a page size, and prefetches. They are
	// nil for other operations.
	List  func(context.Context, *msgpush.Client, msgpush.PageRequest) (any, error)
	Pages func(_ context.Context, _ *msgpush.Client, pageSize, prefetch int) iter.Seq2[any, error]
}

// All returns one Call for each specified operation. An operation without the method of its name, or a list
// without a method that returns its Pager, is left out: the tests of Operations name it.
func All() []Call {
	var all []Call
	for _, op := range msgpush.Operations() {
		if call, err := Of(op); err == nil && op.Specified() {
			all = append(all, call)
		}
	}
	return all
}

// WithData returns the calls that return data.
func WithData() []Call {
	return slices.DeleteFunc(All(), func(c Call) bool { return c.Data == nil })
}

// Lists returns the calls of lists.
func Lists() []Call {
	return slices.DeleteFunc(All(), func(c Call) bool { return c.Pages == nil })
}

var (
	clientType  = reflect.TypeFor[*msgpush.Client]()
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
	pageRequest = reflect.TypeFor[msgpush.PageRequest]()
)

// Of returns the call of an operation, or an error that names the missing part.
func Of(op msgpush.Operation) (Call, error) {
	m, ok := clientType.MethodByName(op.Name)
	if !ok {
		return Call{}, fmt.Errorf("msgpush.Client has no method %s: add it to the file of its resource", op.Name)
	}
	if !isCall(m.Type) {
		return Call{}, fmt.Errorf("msgpush.Client.%s must have a context as its first argument, "+
			"and return an error, or a pointer to the data and an error", op.Name)
	}
	c := Call{Operation: op.Name, Do: doer(m)}
	if m.Type.NumOut() == 2 {
		c.Data = m.Type.Out(0).Elem()
	}
	if last := m.Type.In(m.Type.NumIn() - 1); last.Kind() == reflect.Struct {
		c.Body = last
	}
	if !hasPageRequest(c.Body) {
		return c, nil
	}
	listMethod, ok := listMethodOf(c.Data)
	if !ok {
		return Call{}, fmt.Errorf("msgpush.Client has no method that returns a Pager for %s, "+
			"such as MPPager: add it", op.Name)
	}
	if err := checkPager(listMethod); err != nil {
		return Call{}, err
	}
	c.List = func(ctx context.Context, client *msgpush.Client, r msgpush.PageRequest) (any, error) {
		return result(m.Func.Call([]reflect.Value{reflect.ValueOf(client), contextOf(ctx), requestOf(c.Body, r)}))
	}
	c.Pages = func(ctx context.Context, client *msgpush.Client, pageSize, prefetch int) iter.Seq2[any, error] {
		list := pagerOf(listMethod, client)
		list.FieldByName("PageSize").SetInt(int64(pageSize))
		list.FieldByName("Prefetch").SetInt(int64(prefetch))
		seq := list.MethodByName("Pages").Call([]reflect.Value{contextOf(ctx)})[0]
		return func(yield func(any, error) bool) {
			for page, err := range seq.Seq2() {
				if !yield(result([]reflect.Value{page, err})) {
					return
				}
			}
		}
	}
	return c, nil
}

// isCall reports whether a method has a context as its first argument, and returns an error, perhaps after a
// pointer.
func isCall(m reflect.Type) bool {
	hasContext := m.NumIn() >= 2 && m.In(1) == contextType
	results := m.NumOut()
	hasError := results > 0 && m.Out(results-1) == errorType
	hasResult := results == 2 && m.Out(0).Kind() == reflect.Pointer
	return hasContext && hasError && (results == 1 || hasResult)
}

func hasPageRequest(body reflect.Type) bool {
	if body == nil || body == pageRequest {
		return body != nil
	}
	_, ok := body.FieldByName(pageRequest.Name())
	return ok
}

// listMethodOf returns the method of Client that returns a Pager of these pages.
func listMethodOf(page reflect.Type) (reflect.Method, bool) {
	for m := range clientType.Methods() {
		if m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.Struct {
			continue
		}
		if fetch, ok := m.Type.Out(0).FieldByName("Fetch"); ok && fetch.Type.Out(0).Elem() == page {
			return m, true
		}
	}
	return reflect.Method{}, false
}

// pagerOf calls a method that returns a Pager, without a filter. The Pager can be changed.
func pagerOf(m reflect.Method, client *msgpush.Client) reflect.Value {
	args := []reflect.Value{reflect.ValueOf(client)}
	for i := 1; i < m.Type.NumIn(); i++ {
		args = append(args, reflect.Zero(m.Type.In(i)))
	}
	pager := reflect.New(m.Type.Out(0)).Elem()
	pager.Set(m.Func.Call(args)[0])
	return pager
}

// checkPager returns an error if the Pager of a list lacks a field: without ID, it would read pages of a test
// without end. Without Name, package follow would accept the position of another list, and without Created,
// it would not see the order.
func checkPager(m reflect.Method) error {
	pager := pagerOf(m, new(msgpush.Client))
	id, created := pager.FieldByName("ID"), pager.FieldByName("Created")
	record := id.Type().In(0)
	_, hasCreateTime := record.FieldByName("CreateTime")
	switch {
	case id.IsNil():
		return fmt.Errorf("the Pager of msgpush.Client.%s has no ID function: set it", m.Name)
	case pager.FieldByName("Name").IsZero():
		return fmt.Errorf("the Pager of msgpush.Client.%s has no Name: set it to that of the operation", m.Name)
	case created.IsNil() && hasCreateTime:
		return fmt.Errorf("the Pager of msgpush.Client.%s has no Created function: let it return the CreateTime", m.Name)
	}
	return nil
}

func doer(m reflect.Method) func(context.Context, *msgpush.Client) (any, error) {
	return func(ctx context.Context, client *msgpush.Client) (any, error) {
		args := []reflect.Value{reflect.ValueOf(client), contextOf(ctx)}
		return result(m.Func.Call(append(args, arguments(m)...)))
	}
}

// contextOf returns a context as an argument, even if it is nil.
func contextOf(ctx context.Context) reflect.Value { return reflect.ValueOf(&ctx).Elem() }

// result returns the results of a method: data, which may be absent or nil, and an error.
func result(values []reflect.Value) (data any, err error) {
	if v := values[0]; len(values) == 2 && !v.IsNil() {
		data = v.Interface()
	}
	err, _ = reflect.TypeAssert[error](values[len(values)-1])
	return data, err
}

// requestOf returns the request of a page: r, or a struct that embeds r.
func requestOf(typ reflect.Type, r msgpush.PageRequest) reflect.Value {
	v := reflect.New(typ).Elem()
	if typ == pageRequest {
		v.Set(reflect.ValueOf(r))
		return v
	}
	v.FieldByName(pageRequest.Name()).Set(reflect.ValueOf(r))
	return v
}

// arguments returns the arguments of a method after its context. A string or an int64 is the id of the sample
// record of the method, such as 101 for MailDetail. The request of a list is zero, and other structs are
// filled.
func arguments(m reflect.Method) []reflect.Value {
	sample := sampleRecord(m.Name)
	var all []reflect.Value
	for i := 2; i < m.Type.NumIn(); i++ {
		v := reflect.New(m.Type.In(i)).Elem()
		switch {
		case v.Kind() == reflect.String:
			v.SetString(fmt.Sprint(idOf(sample)))
		case v.Kind() == reflect.Int64:
			v.SetInt(idOf(sample))
		case v.Kind() == reflect.Struct && !hasPageRequest(v.Type()):
			fill(v, sample)
		}
		all = append(all, v)
	}
	return all
}

// fill sets the fields of a struct to the fields of a sample record, which may be invalid, or to values that
// are not zero.
func fill(v, sample reflect.Value) {
	for field, value := range v.Fields() {
		if value.Kind() == reflect.Pointer {
			value.Set(reflect.New(field.Type.Elem()))
			value = value.Elem()
		}
		if sample.IsValid() {
			if same := sample.FieldByName(field.Name); same.IsValid() && same.Type().ConvertibleTo(value.Type()) {
				value.Set(same.Convert(value.Type()))
				continue
			}
		}
		switch value.Kind() {
		case reflect.Struct:
			fill(value, sample)
		case reflect.String:
			value.SetString("text")
		case reflect.Bool:
			value.SetBool(true)
		case reflect.Int, reflect.Int32, reflect.Int64:
			value.SetInt(1)
		}
	}
}

// sampleRecord returns the first sample record of the resource that begins the name of a method. It is
// invalid if there is none.
func sampleRecord(method string) reflect.Value {
	for field, list := range reflect.ValueOf(msgpushtest.SampleRecords()).Fields() {
		resource := strings.TrimSuffix(strings.TrimSuffix(field.Name, "s"), "Channel")
		if list.Kind() == reflect.Slice && list.Len() > 0 && strings.HasPrefix(method, resource) {
			return list.Index(0)
		}
	}
	return reflect.Value{}
}

// idOf returns the id of a sample record, or 1.
func idOf(sample reflect.Value) int64 {
	if sample.IsValid() {
		if id := sample.FieldByName("ID"); id.IsValid() && id.CanInt() {
			return id.Int()
		}
	}
	return 1
}

// FilteredRequest returns the body of a request for the first page of a list, with every filter.
func (c Call) FilteredRequest() []byte {
	v := requestOf(c.Body, msgpush.PageRequest{Current: 1, PageSize: msgpush.DefaultPageSize})
	for field, value := range v.Fields() {
		if !field.Anonymous && value.Kind() == reflect.Struct {
			fill(value, sampleRecord(strings.TrimSuffix(c.Operation, "List")))
		}
	}
	body, _ := json.Marshal(v.Interface()) // the requests have no field that cannot be encoded
	return body
}

// IsIdempotent reports whether the client sends the request of a call again after a failure that may be
// temporary.
func (c Call) IsIdempotent() bool {
	attempts := 0
	c.send(2, func(*http.Request) { attempts++ })
	return attempts > 1
}

// Request returns the request that a call sends, and its body. It is nil if the call sends none.
func (c Call) Request() (sent *http.Request, body []byte) {
	c.send(1, func(r *http.Request) {
		sent = r
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
		}
	})
	return sent, body
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// send makes the call. Each attempt fails after see.
func (c Call) send(attempts int, see func(*http.Request)) {
	transport := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		see(r)
		return nil, errors.New("no service")
	})
	client, err := msgpush.NewClient("https://push.example.com", "key",
		msgpush.WithHTTPClient(&http.Client{Transport: transport}),
		msgpush.WithRetry(msgpush.RetryPolicy{MaxAttempts: attempts, MinWait: 1, MaxWait: 1}))
	if err == nil {
		_, _ = c.Do(context.Background(), client)
	}
}
