package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

// sourceFunc is a source of keys.
type sourceFunc func(ctx context.Context, rejected string) (string, error)

func (f sourceFunc) AccessKey(ctx context.Context, rejected string) (string, error) {
	return f(ctx, rejected)
}

// clientFrom returns a client that has its key from a source and sends through a
// transport in memory.
func clientFrom(t testing.TB, source msgpush.AccessKeySource, transport http.RoundTripper, opts ...msgpush.Option) *msgpush.Client {
	t.Helper()
	opts = append([]msgpush.Option{
		once, msgpush.WithAccessKeySource(source), msgpush.WithHTTPClient(&http.Client{Transport: transport}),
	}, opts...)
	client, err := msgpush.NewClient("http://push.example.com", "", opts...)
	require.NoError(t, err)
	return client
}

// taking is a service that takes one key, and refuses all others with a response.
func taking(key string, refuse roundTripper) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("access-key") != key {
			return refuse(r)
		}
		return succeeding(r)
	}
}

func envelopeCode(status, code int) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		return response(r, status, fmt.Sprintf(`{"code":%d,"msg":"key?"}`, code)), nil
	}
}

func TestAKeyOrASourceOfKeysButNotBoth(t *testing.T) {
	source := sourceFunc(func(context.Context, string) (string, error) { return "key", nil })
	_, err := msgpush.NewClient("http://push.example.com", testKey, msgpush.WithAccessKeySource(source))
	assert.ErrorContains(t, err, "WithAccessKeySource")
	assert.NotContains(t, err.Error(), testKey)
	_, err = msgpush.NewClient("http://push.example.com", "")
	assert.ErrorContains(t, err, "access key is empty")
	_, err = msgpush.NewClient("http://push.example.com", "", msgpush.WithAccessKeySource(nil))
	assert.ErrorContains(t, err, "source is nil")
	_, err = msgpush.NewClient("http://push.example.com", testKey, msgpush.WithRejectedKeyCodes(401, 200))
	assert.ErrorContains(t, err, "WithRejectedKeyCodes")
}

func TestARefusedKeyIsReplacedOnce(t *testing.T) {
	codes := msgpush.WithRejectedKeyCodes(4010, 0)
	tests := []struct {
		name    string
		refuse  roundTripper
		refused bool
	}{
		{"HTTP 401", status(401), true},
		{"HTTP 401 without an envelope", func(r *http.Request) (*http.Response, error) { return response(r, 401, "<html>"), nil }, true},
		{"named code", envelopeCode(200, 4010), true},
		{"named code with another status", envelopeCode(403, 4010), true},
		{"named code 0", envelopeCode(200, 0), true},
		{"other code", envelopeCode(200, 4011), false},
		{"HTTP 403", status(403), false},
		{"no code, though 0 is named", func(r *http.Request) (*http.Response, error) { return response(r, 502, "<html>"), nil }, false},
		{"success with an unlucky id", func(r *http.Request) (*http.Response, error) {
			return response(r, 200, `{"code":200,"data":{"code":4010}}`), nil
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			call := func(operation func(*msgpush.Client) error) (asked []string, sent int, err error) {
				source := sourceFunc(func(_ context.Context, rejected string) (string, error) {
					asked = append(asked, rejected)
					if rejected == "old-key" {
						return "new-key", nil
					}
					return "old-key", nil
				})
				transport := newScript(taking("new-key", tt.refuse))
				err = operation(clientFrom(t, source, transport, codes))
				return asked, len(transport.times), err
			}
			for name, operation := range map[string]func(*msgpush.Client) error{
				"specified":      func(c *msgpush.Client) error { _, err := c.MPList(ctx, msgpush.PageRequest{}); return err },
				"not repeatable": func(c *msgpush.Client) error { return create(c) },
			} {
				asked, sent, err := call(operation)
				if tt.refused {
					assert.NoError(t, err, name)
					assert.Equal(t, []string{"", "old-key"}, asked)
					assert.Equal(t, 2, sent)
				} else {
					assert.Equal(t, []string{""}, asked)
					assert.Equal(t, 1, sent)
				}
			}
		})
	}
}

// create is a call that may not be repeated.
func create(c *msgpush.Client) error {
	_, err := msgpush.Call[any](ctx, c, msgpush.Request{Method: "POST", Path: "/create", Body: 1})
	return err
}

func TestAKeyThatStaysRefusedIsAnError(t *testing.T) {
	refusals := 0
	refuse := func(r *http.Request) (*http.Response, error) { refusals++; return status(401)(r) }

	t.Run("a fixed key", func(t *testing.T) {
		refusals = 0
		_, err := clientThrough(t, roundTripper(refuse), defaults).MPList(ctx, msgpush.PageRequest{})
		require.IsType(t, &msgpush.APIError{}, err)
		assertAttempts(t, 1, err)
		assert.Equal(t, 1, refusals)
	})
	t.Run("a source without another key", func(t *testing.T) {
		refusals = 0
		source := sourceFunc(func(context.Context, string) (string, error) { return testKey, nil })
		err := create(clientFrom(t, source, roundTripper(refuse)))
		require.IsType(t, &msgpush.APIError{}, err)
		assert.Equal(t, 1, refusals)
	})
	t.Run("another key that is refused too", func(t *testing.T) {
		refusals = 0
		source := sourceFunc(func(_ context.Context, rejected string) (string, error) { return rejected + "another", nil })
		err := create(clientFrom(t, source, roundTripper(refuse)))
		require.IsType(t, &msgpush.APIError{}, err)
		assertAttempts(t, 2, err)
		assert.Equal(t, 2, refusals)
	})
	t.Run("a source that fails", func(t *testing.T) {
		broken := errors.New("the vault is closed")
		source := sourceFunc(func(_ context.Context, rejected string) (string, error) {
			if rejected != "" {
				return "", broken
			}
			return testKey, nil
		})
		err := create(clientFrom(t, source, roundTripper(refuse)))
		require.IsType(t, &msgpush.CallError{}, err)
		assert.ErrorIs(t, err, broken)
		var apiErr *msgpush.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, 401, apiErr.HTTPStatus)
	})
}

func TestASourceThatGivesNoKeySendsNothing(t *testing.T) {
	broken := errors.New("the vault is closed")
	for name, tt := range map[string]struct {
		key  string
		err  error
		want string
	}{
		"an error":             {"", broken, "the vault is closed"},
		"an empty key":         {"", nil, "empty"},
		"a key with a newline": {testKey + "\n", nil, "control character"},
	} {
		t.Run(name, func(t *testing.T) {
			source := sourceFunc(func(context.Context, string) (string, error) { return tt.key, tt.err })
			_, err := clientFrom(t, source, newScript(failing(errors.New("sent")))).MailDetail(ctx, "1")
			require.IsType(t, &msgpush.CallError{}, err)
			var callErr *msgpush.CallError
			require.ErrorAs(t, err, &callErr)
			assert.Zero(t, callErr.Attempts)
			assert.ErrorContains(t, err, "msgpush: mail channel detail: access key: ")
			assert.ErrorContains(t, err, tt.want)
			assertHidden(t, testKey, err)
			if tt.err != nil {
				assert.ErrorIs(t, err, tt.err)
			}
		})
	}
}

// vault gives out keys that each live for a while, and counts the fetches.
type vault struct {
	fetches atomic.Int32
	delay   time.Duration
	life    time.Duration // 0 for keys that do not expire
	err     atomic.Pointer[error]
}

func (v *vault) fetch(ctx context.Context) (string, time.Time, error) {
	n := v.fetches.Add(1)
	select {
	case <-time.After(v.delay):
	case <-ctx.Done():
		return "", time.Time{}, ctx.Err()
	}
	if err := v.err.Load(); err != nil {
		return "", time.Time{}, *err
	}
	var expires time.Time
	if v.life > 0 {
		expires = time.Now().Add(v.life)
	}
	return fmt.Sprint("key-", n), expires, nil
}

// assertKey checks which key a source gives, and after which time.
func assertKey(t *testing.T, source msgpush.AccessKeySource, rejected, want string, after time.Duration) {
	t.Helper()
	start := time.Now()
	key, err := source.AccessKey(ctx, rejected)
	assert.NoError(t, err)
	assert.Equal(t, want, key)
	assert.Equal(t, after, time.Since(start))
}

func TestACachedKeyIsFetchedOnceForAll(t *testing.T) {
	for name, rejected := range map[string]string{"at first": "", "when refused": "key-1"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &vault{delay: time.Second}
				source := msgpush.CachedAccessKey(v.fetch, time.Minute)
				fetches := int32(1)
				if rejected != "" {
					assertKey(t, source, "", "key-1", time.Second)
					fetches = 2
				}
				var wg sync.WaitGroup
				for range 1000 {
					wg.Go(func() { assertKey(t, source, rejected, fmt.Sprint("key-", fetches), time.Second) })
				}
				wg.Wait()
				assert.Equal(t, fetches, v.fetches.Load())
				assertKey(t, source, rejected, fmt.Sprint("key-", fetches), 0)
				time.Sleep(1000 * time.Hour)
				assertKey(t, source, "", fmt.Sprint("key-", fetches), 0)
			})
		})
	}
}

func TestAThousandCallersWithARefusedKeyCauseOneRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: time.Second}
		client := clientFrom(t, msgpush.CachedAccessKey(v.fetch, 0), taking("key-2", status(401)))
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				_, err := client.MPList(ctx, msgpush.PageRequest{})
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Equal(t, int32(2), v.fetches.Load())
	})
}

func TestACachedKeyIsRenewedEarlyWithoutHoldingUpCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: time.Second, life: time.Minute}
		source := msgpush.CachedAccessKey(v.fetch, 10*time.Second)
		assertKey(t, source, "", "key-1", time.Second)
		time.Sleep(49 * time.Second)
		assertKey(t, source, "", "key-1", 0)
		assert.Equal(t, int32(1), v.fetches.Load())
		time.Sleep(time.Second)
		for range 10 {
			assertKey(t, source, "", "key-1", 0)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, int32(2), v.fetches.Load())
		assertKey(t, source, "", "key-2", 0)
	})
}

func TestACachedKeyIsNotGivenOutAfterItsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: time.Second, life: time.Minute}
		source := msgpush.CachedAccessKey(v.fetch, 0)
		assertKey(t, source, "", "key-1", time.Second)
		time.Sleep(time.Minute)
		assertKey(t, source, "", "key-2", time.Second)
	})
}

func TestAFailedFetchIsAnErrorForThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the vault is closed")
		v := &vault{delay: time.Second}
		v.err.Store(&broken)
		source := msgpush.CachedAccessKey(v.fetch, 0)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := source.AccessKey(ctx, "")
				assert.ErrorIs(t, err, broken)
			})
		}
		wg.Wait()
		assert.Equal(t, int32(1), v.fetches.Load())
		v.err.Store(nil)
		assertKey(t, source, "", "key-2", time.Second)
	})
}

func TestAnEarlyRenewalThatFailsLeavesTheOldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the vault is closed")
		v := &vault{life: time.Minute}
		source := msgpush.CachedAccessKey(v.fetch, 30*time.Second)
		assertKey(t, source, "", "key-1", 0)
		v.err.Store(&broken)
		time.Sleep(40 * time.Second)
		assertKey(t, source, "", "key-1", 0)
		synctest.Wait()
		assertKey(t, source, "", "key-1", 0)
		synctest.Wait()
		assert.Equal(t, int32(3), v.fetches.Load())
		time.Sleep(20 * time.Second)
		_, err := source.AccessKey(ctx, "")
		assert.ErrorIs(t, err, broken)
	})
}

func TestACallersContextEndsItsOwnWaitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: 10 * time.Second}
		source := msgpush.CachedAccessKey(v.fetch, 0)
		first, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := source.AccessKey(first, "")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		wg.Go(func() { assertKey(t, source, "", "key-1", 10*time.Second) })
		wg.Wait()
		assert.Equal(t, int32(1), v.fetches.Load())
	})
}

func TestAFetchThatHangsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{delay: time.Hour}
		source := msgpush.CachedAccessKey(v.fetch, 0)
		start := time.Now()
		_, err := source.AccessKey(ctx, "")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, msgpush.DefaultTimeout, time.Since(start))
	})
}

func TestAFetchThatBeganBeforeTheRefusalIsNotTheLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := []string{"key-1", "key-1", "key-2"}
		n := 0
		source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
			key := keys[n]
			n++
			time.Sleep(time.Second)
			return key, time.Now().Add(time.Minute), nil
		}, 59*time.Second)
		assertKey(t, source, "", "key-1", time.Second)
		time.Sleep(2 * time.Second)
		assertKey(t, source, "", "key-1", 0) // begins the early renewal
		synctest.Wait()
		assertKey(t, source, "key-1", "key-2", 2*time.Second)
	})
}

func TestAKeyThatIsFetchedAgainAndAgainIsNotFetchedByEachCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fetches atomic.Int32
		source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
			fetches.Add(1)
			time.Sleep(time.Second)
			return "always-the-same", time.Time{}, nil
		}, 0)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				key, err := source.AccessKey(ctx, "always-the-same")
				assert.NoError(t, err)
				assert.Equal(t, "always-the-same", key)
			})
		}
		wg.Wait()
		assert.LessOrEqual(t, fetches.Load(), int32(2))
	})
}

func TestARefusedKeyIsNotGivenOutToOthers(t *testing.T) {
	broken := errors.New("the vault is closed")
	v := &vault{}
	source := msgpush.CachedAccessKey(v.fetch, 0)
	key, err := source.AccessKey(ctx, "")
	require.NoError(t, err)
	v.err.Store(&broken)
	_, err = source.AccessKey(ctx, key)
	assert.ErrorIs(t, err, broken)
	_, err = source.AccessKey(ctx, "")
	assert.ErrorIs(t, err, broken)
	v.err.Store(nil)
	another, err := source.AccessKey(ctx, "")
	require.NoError(t, err)
	assert.NotEqual(t, key, another)
}

func TestAFetchThatEndsItsGoroutineIsAFailedFetch(t *testing.T) {
	source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		runtime.Goexit() // as FailNow of a test does
		return "", time.Time{}, nil
	}, 0)
	for range 2 {
		_, err := source.AccessKey(ctx, "")
		assert.ErrorContains(t, err, "did not return")
	}
}

func TestAFetchedKeyThatNoHeaderCarriesIsNotKept(t *testing.T) {
	keys := []string{testKey + "\n", testKey}
	source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) {
		key := keys[0]
		keys = keys[1:]
		return key, time.Time{}, nil
	}, 0)
	_, err := source.AccessKey(ctx, "")
	assert.ErrorContains(t, err, "control character")
	key, err := source.AccessKey(ctx, "")
	require.NoError(t, err)
	assert.Equal(t, testKey, key)
}

func TestACachedKeyDoesNotPrint(t *testing.T) {
	source := msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) { return testKey, time.Time{}, nil }, 0)
	key, err := source.AccessKey(ctx, "")
	require.NoError(t, err)
	assert.Equal(t, testKey, key)
	assertHidden(t, testKey, source, msgpush.WithAccessKeySource(source))
}

func TestCachedAccessKeyOfNothing(t *testing.T) {
	_, err := msgpush.CachedAccessKey(nil, 0).AccessKey(ctx, "")
	assert.ErrorContains(t, err, "nil")
	_, err = msgpush.CachedAccessKey(func(context.Context) (string, time.Time, error) { return "", time.Time{}, nil }, 0).AccessKey(ctx, "")
	assert.ErrorContains(t, err, "empty")
}
