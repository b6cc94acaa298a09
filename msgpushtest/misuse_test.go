package msgpushtest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/msgpushtest"
)

const (
	madeOutside = "the server was made outside the synctest bubble that uses it: make it inside, with the t of the bubble and the option InMemory()"
	madeInside  = "the server was made inside a synctest bubble, and is used outside it: use it only inside"
)

func TestServerThatWasNotMadePanics(t *testing.T) {
	const text = "msgpushtest: the Server was not made by New or NewServer, which start it"
	for name, server := range map[string]*msgpushtest.Server{"zero": {}, "nil": nil} {
		for method, f := range reflect.ValueOf(server).Methods() {
			t.Run(name+", "+method.Name, func(t *testing.T) {
				var args []reflect.Value
				for arg := range method.Type.Ins() {
					args = append(args, reflect.Zero(arg))
				}
				args = args[1:] // without the receiver
				assert.PanicsWithValue(t, text, func() {
					if method.Type.IsVariadic() {
						f.CallSlice(args)
					} else {
						f.Call(args)
					}
				})
			})
		}
	}
}

// inMemoryAndOnSocket calls f with a server of each kind.
func inMemoryAndOnSocket(t *testing.T, f func(*testing.T, *msgpushtest.Server)) {
	t.Run("in memory", func(t *testing.T) { f(t, msgpushtest.New(t, msgpushtest.InMemory())) })
	t.Run("on a socket", func(t *testing.T) { f(t, msgpushtest.New(t)) })
}

func TestServerMadeOutsideBubblePanicsInside(t *testing.T) {
	inMemoryAndOnSocket(t, func(t *testing.T, server *msgpushtest.Server) {
		client, httpClient := clientOf(t, server), server.HTTPClient()
		require.NoError(t, calls[msgpushtest.MPList](client), "leaves an idle connection")
		synctest.Test(t, func(t *testing.T) {
			for method, use := range map[string]func(){
				"HTTPClient: ": func() { _ = calls[msgpushtest.MPList](client) },
				"HTTPClient:":  func() { _, _ = httpClient.Get(server.URL) }, //nolint:bodyclose // there is no response
				"HTTPClient":   func() { server.HTTPClient() },
				"Client":       func() { server.Client() },
				"AccessKey":    func() { server.AccessKey() },
				"Update":       func() { server.SetRecords(msgpushtest.SampleRecords()) },
				"Close":        server.Close,
				"WaitForRequest": func() {
					_, _ = server.WaitForRequest(t.Context(), 99)
				},
			} {
				assertPanics(t, method, madeOutside, use)
			}
		})
		assert.NoError(t, calls[msgpushtest.MPList](client))
	})
}

func assertPanics(t *testing.T, method, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		got := fmt.Sprint(recover())
		assert.Contains(t, got, "msgpushtest: "+method)
		assert.Contains(t, got, text)
	}()
	f()
}

func TestServerMadeInsideBubblePanicsOutside(t *testing.T) {
	type made struct {
		server *msgpushtest.Server
		client *msgpush.Client
	}
	servers, done := make(chan made), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // outside the bubble
		m := <-servers
		defer close(done)
		for method, use := range map[string]func(){
			"HTTPClient":     func() { _ = calls[msgpushtest.MPList](m.client) },
			"Client":         func() { m.server.Client() },
			"AccessKey":      func() { m.server.AccessKey() },
			"Update":         func() { m.server.Update(func(*msgpushtest.Records) {}) },
			"Close":          m.server.Close,
			"WaitForRequest": func() { _, _ = m.server.WaitForRequest(ctx, 99) },
			"ServeHTTP":      func() { m.server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) },
		} {
			assertPanics(t, method, madeInside, use)
		}
		m.server.Inject(msgpushtest.Status(404)) // these need no channel
		m.server.ClearFaults()
		assert.Len(t, m.server.Requests(), 1)
		assert.Empty(t, m.server.Records())
	})
	synctest.Test(t, func(t *testing.T) {
		server := msgpushtest.New(t, msgpushtest.InMemory())
		client := server.Client()
		require.NoError(t, calls[msgpushtest.MPList](client), "leaves an idle connection")
		servers <- made{server, client}
		<-done
	})
	wg.Wait()
}

func TestRequestsOfAServerInABubbleCanBeReadAfterwards(t *testing.T) {
	var server *msgpushtest.Server
	synctest.Test(t, func(t *testing.T) {
		server = msgpushtest.New(t, msgpushtest.InMemory())
		require.NoError(t, calls[msgpushtest.MPList](server.Client()))
	})
	assert.Len(t, server.Requests(), 1)
}

func TestNewWithTheTestOutsideTheBubblePanics(t *testing.T) {
	synctest.Test(t, func(inner *testing.T) {
		assert.PanicsWithValue(inner, "msgpushtest: New: the test is the one outside the synctest bubble: give New the t of the function of synctest.Test",
			func() { msgpushtest.New(t, msgpushtest.InMemory()) })
		assert.NotPanics(inner, func() { msgpushtest.New(inner, msgpushtest.InMemory()) })
	})
}

func TestFunctionsOfUpdateMustNotUpdate(t *testing.T) {
	const text = "msgpushtest: Update: the function given to %s must not call Update or SetRecords: change the records that it gets"
	for name, update := range map[string]func(*msgpushtest.Server){
		"Update":     func(s *msgpushtest.Server) { s.Update(func(*msgpushtest.Records) {}) },
		"SetRecords": func(s *msgpushtest.Server) { s.SetRecords(msgpushtest.Records{}) },
	} {
		for _, outer := range []string{"Update", "UpdateBetweenPages"} {
			t.Run(name+" in "+outer, func(t *testing.T) {
				test := &tb{}
				server := msgpushtest.New(test)
				assert.Error(t, userFunctions[outer](server, func() { update(server) }))
				server.UpdateBetweenPages(nil)
				server.Update(func(r *msgpushtest.Records) { r.ForwardRules = msgpushtest.SampleRecords().ForwardRules })
				assert.Len(t, server.Records().ForwardRules, 5, "the server can be used afterwards")
				test.end()
				require.Len(t, test.errors, 1)
				assert.Contains(t, test.errors[0], fmt.Sprintf(text, outer))
			})
		}
	}
}

func TestUpdateInAnotherFunctionWorks(t *testing.T) {
	server := msgpushtest.New(t)
	add := func() {
		server.Update(func(r *msgpushtest.Records) { r.MPChannels = append(r.MPChannels, msgpush.MPChannel{}) })
	}
	for _, name := range []string{"OnRequest", "If", "Respond"} {
		before := len(server.Records().MPChannels)
		_ = userFunctions[name](server, add)
		assert.Greater(t, len(server.Records().MPChannels), before, name)
	}
	server.ClearFaults()
}

func TestCloseInAFunctionPanics(t *testing.T) {
	for _, name := range []string{"OnRequest", "UpdateBetweenPages", "Respond", "If"} {
		t.Run(name, func(t *testing.T) {
			test := &tb{}
			server := msgpushtest.New(test)
			_ = userFunctions[name](server, server.Close)
			server.ClearFaults()
			test.end()
			require.Len(t, test.errors, 1)
			assert.Contains(t, test.errors[0], "msgpushtest: Close: it waits for the function given to "+name+", which must not call it: call Close elsewhere")
		})
	}
	t.Run("Update", func(t *testing.T) {
		server := msgpushtest.New(t)
		server.Update(func(*msgpushtest.Records) { server.Close() })
	})
}

func TestRequestInAFunctionPanics(t *testing.T) {
	const text = "msgpushtest: the function given to %s sends a request, but the server calls the function for one request at a time: send the request elsewhere, or in another goroutine"
	for _, name := range []string{"OnRequest", "UpdateBetweenPages", "If"} {
		t.Run(name, func(t *testing.T) {
			test := &tb{}
			server := msgpushtest.New(test)
			client := clientOf(t, server)
			_ = userFunctions[name](server, func() { _ = calls[msgpushtest.ForwardRuleList](client) })
			server.ClearFaults()
			test.end()
			require.Len(t, test.errors, 1)
			assert.Contains(t, test.errors[0], fmt.Sprintf(text, name))
		})
	}
	for _, name := range []string{"Respond", "Update"} {
		t.Run(name+" works", func(t *testing.T) {
			server := msgpushtest.New(t)
			var err error
			_ = userFunctions[name](server, func() { err = calls[msgpushtest.ForwardRuleList](clientOf(t, server)) })
			assert.NoError(t, err)
		})
	}
}

func TestCloseLogsTheFunctionThatItWaitsFor(t *testing.T) {
	for _, name := range []string{"OnRequest", "UpdateBetweenPages", "Respond", "If"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test := &tb{}
				server := msgpushtest.New(test, msgpushtest.InMemory())
				var wg sync.WaitGroup
				wg.Go(func() { _ = userFunctions[name](server, func() { time.Sleep(time.Hour) }) })
				synctest.Wait()
				start := time.Now()
				wg.Go(server.Close)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				assert.Equal(t, []string{"msgpushtest: Close waits for the function given to " + name + ", which has not returned"}, test.logs)
				wg.Wait()
				assert.Equal(t, time.Hour, time.Since(start))
				server.ClearFaults()
				test.end()
				assert.Empty(t, test.errors)
			})
		})
	}
}

// In real time: in a bubble, the runtime reports the deadlock.
func TestFunctionThatNeverReturnsFailsTheTest(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 7 seconds")
	}
	t.Parallel()
	const text = "msgpushtest: Close waits for the function given to OnRequest, which has not returned"
	test := &tb{}
	server := msgpushtest.New(test)
	block := make(chan struct{})
	defer close(block)
	server.OnRequest(func(msgpushtest.Request) { <-block })
	client := clientOf(t, server)
	canceled, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = client.MPList(canceled, msgpush.PageRequest{})
	}()
	_, err := server.WaitForRequest(ctx, 1)
	require.NoError(t, err)
	cancel()
	<-done
	server.Close()
	test.end() // calls Close again, which does not wait again
	assert.Equal(t, []string{text + " after 7s: end it before the test ends"}, test.errors)
	assert.Equal(t, []string{text, "msgpushtest: 1 requests arrived"}, test.logs[:2])
}
