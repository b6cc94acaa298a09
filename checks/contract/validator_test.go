package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../openapi.json")
	require.NoError(t, err)
	return doc
}

// A validator is an [http.RoundTripper] that checks requests and responses against
// openapi.json. It also reports what OpenAPI allows but the API document does not
// show: unknown members, unknown or repeated query parameters, missing members of a
// success, an envelope without a code or msg, or with an empty msg, and one that does not match
// exactly one of success and failure.
type validator struct {
	doc  *openapi3.T
	next http.RoundTripper

	mu         sync.Mutex
	paths      map[string]bool // of the responses
	codes      map[float64]int // responses by code of the envelope
	violations []string
}

func newValidator(doc *openapi3.T, next http.RoundTripper) *validator {
	return &validator{doc: doc, next: next, paths: map[string]bool{}, codes: map[float64]int{}}
}

// RoundTrip sends the request even if it violates openapi.json.
func (v *validator) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	var requestBody []byte
	if r.Body != nil {
		var err error
		requestBody, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(requestBody)), nil }
		r.Body, _ = r.GetBody() // never fails
	}
	route, err := v.route(r)
	if err != nil {
		v.report(r, "request", err)
	} else {
		v.report(r, "request", v.checkRequest(r, requestBody, route)...)
	}
	response, err := v.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	v.report(r, "response", v.checkResponse(r, response, body, route)...)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.paths[r.URL.Path] = true
	envelope, _ := decode(body).(map[string]any)
	if code, ok := envelope["code"].(float64); ok {
		v.codes[code]++
	}
	return response, nil
}

func (v *validator) report(r *http.Request, what string, errs ...error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, err := range errs {
		v.violations = append(v.violations, fmt.Sprintf("%s %s: %s: %v", r.Method, r.URL.Path, what, err))
	}
}

// result returns the violations so far.
func (v *validator) result() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.violations)
}

func (v *validator) route(r *http.Request) (*routers.Route, error) {
	item := v.doc.Paths.Value(r.URL.Path)
	if item == nil {
		return nil, errors.New("there is no such path")
	}
	op := item.GetOperation(r.Method)
	if op == nil {
		return nil, errors.New("the path has no such method")
	}
	return &routers.Route{Spec: v.doc, Path: r.URL.Path, PathItem: item, Method: r.Method, Operation: op}, nil
}

func (v *validator) checkRequest(r *http.Request, body []byte, route *routers.Route) []error {
	input := &openapi3filter.RequestValidationInput{Request: r, Route: route, Options: &openapi3filter.Options{
		MultiError:                        true,
		RejectWhenRequestBodyNotSpecified: true,
		AuthenticationFunc:                checkAccessKey,
	}}
	var errs []error
	if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
		errs = append(errs, err)
	}
	for name, values := range r.URL.Query() {
		if route.Operation.Parameters.GetByInAndName("query", name) == nil {
			errs = append(errs, fmt.Errorf("unknown query parameter %q", name))
		}
		if len(values) > 1 {
			errs = append(errs, fmt.Errorf("%d query parameters %q", len(values), name))
		}
	}
	if route.Operation.RequestBody != nil {
		errs = append(
			errs,
			checkMembers("body", route.Operation.RequestBody.Value.Content["application/json"].Schema, decode(body), false)...)
	}
	return errs
}

func checkAccessKey(_ context.Context, input *openapi3filter.AuthenticationInput) error {
	if input.RequestValidationInput.Request.Header.Get(input.SecurityScheme.Name) == "" {
		return input.NewError(errors.New("the header is missing"))
	}
	return nil
}

// checkResponse checks a response. route is nil if openapi.json does not have the operation
// of the request; the response must then match the response Failure of openapi.json.
func (v *validator) checkResponse(r *http.Request, response *http.Response, body []byte, route *routers.Route) []error {
	if r.Method == http.MethodHead {
		return nil // a response to HEAD has no body
	}
	if route == nil {
		failure := openapi3.WithName("default", v.doc.Components.Responses["Failure"].Value)
		route = &routers.Route{Operation: &openapi3.Operation{Responses: openapi3.NewResponses(failure)}}
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route},
		Status:                 response.StatusCode,
		Header:                 response.Header,
		Options:                &openapi3filter.Options{MultiError: true, IncludeResponseStatus: true},
	}
	input.SetBodyBytes(body)
	var errs []error
	if err := openapi3filter.ValidateResponse(r.Context(), input); err != nil {
		errs = append(errs, err)
	}
	envelope, _ := decode(body).(map[string]any)
	isSuccess := response.StatusCode == http.StatusOK && envelope["code"] == 200.0
	schema := v.doc.Components.Schemas["Envelope"] // a failure may have any data
	if route.Operation.Responses.Status(http.StatusOK) != nil {
		op := operation{Operation: route.Operation}
		if isValid(op.success(), string(body)) == isValid(op.failure(), string(body)) {
			errs = append(errs, errors.New("the envelope is neither a success nor a failure, or both"))
		}
		if isSuccess {
			schema = op.success()
		}
	}
	if err := schema.Value.VisitJSON(decode(body), openapi3.VisitAsResponse(), openapi3.MultiErrors()); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, checkMembers("body", schema, envelope, isSuccess)...)
	if _, ok := envelope["code"]; !ok {
		errs = append(errs, errors.New("missing member body.code"))
	}
	if msg, _ := envelope["msg"].(string); msg == "" {
		errs = append(errs, errors.New("body.msg is missing or empty"))
	}
	return errs
}

// checkMembers checks that the objects in a value have only members of the schema and,
// if complete is set, all of them. A member whose type is not specified may be missing.
func checkMembers(where string, schema *openapi3.SchemaRef, value any, complete bool) []error {
	var errs []error
	switch v := value.(type) {
	case []any:
		if schema.Value.Items == nil {
			return nil // any type is allowed, or kin-openapi reports that the value must not be an array
		}
		for i, element := range v {
			errs = append(errs, checkMembers(fmt.Sprintf("%s[%d]", where, i), schema.Value.Items, element, complete)...)
		}
	case map[string]any:
		properties := schema.Value.Properties
		if schema.Value.Type == nil {
			return nil // any type is allowed
		}
		for name, member := range v {
			if properties[name] == nil {
				if schema.Value.AdditionalProperties.Has != nil {
					continue // any name is allowed, as in the records of Page
				}
				errs = append(errs, fmt.Errorf("unknown member %s.%s", where, name))
				continue
			}
			errs = append(errs, checkMembers(where+"."+name, properties[name], member, complete)...)
		}
		for name, property := range properties {
			if _, ok := v[name]; complete && !ok && property.Value.Type != nil {
				errs = append(errs, fmt.Errorf("missing member %s.%s", where, name))
			}
		}
	}
	return errs
}

// decode returns the JSON value in a body, or nil if it is not JSON.
func decode(body []byte) any {
	var value any
	if json.Unmarshal(body, &value) != nil {
		return nil
	}
	return value
}
