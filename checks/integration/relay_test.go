//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/stretchr/testify/require"
)

// A relay is a toxiproxy that forwards connections.
type relay struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
	addr  string
}

// newRelay starts a relay to an address. It is stopped at the end of the test.
func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	r := startedRelay(t, target)
	t.Cleanup(r.stop)
	return r
}

// startedRelay starts a relay to an address. The caller must stop it.
func startedRelay(t *testing.T, target string) *relay {
	t.Helper()
	r := &relay{t: t, addr: freeAddr()}
	r.proxy = newProxy(r.addr, target)
	r.start()
	return r
}

func newProxy(addr, target string) *toxiproxy.Proxy {
	api := &toxiproxy.ApiServer{Collection: toxiproxy.NewProxyCollection(), Metrics: toxiproxy.NewMetricsContainer(nil)}
	setZero(&api.Logger)
	return toxiproxy.NewProxy(api, "relay", addr, target)
}

// setZero sets a pointer to a new zero value. It is generic to avoid an import of zerolog,
// whose zero logger logs nothing.
func setZero[T any](p **T) { *p = new(T) }

// start accepts connections, at the same address as before. Another process that looks for a
// free port may use the port for a moment, while the relay is stopped.
func (r *relay) start() {
	r.t.Helper()
	eventually(r.t, "the relay listens", func() bool { return r.proxy.Start() == nil })
}

// stop closes the listener and all connections.
func (r *relay) stop() { r.proxy.Stop() }

// add adds a toxic, such as {"type": "latency", "attributes": {"latency": 20}}, to the
// responses or, with "stream": "upstream", to the requests.
func (r *relay) add(toxic string, args ...any) {
	r.t.Helper()
	_, err := r.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(toxic, args...)))
	require.NoError(r.t, err)
}

// A cutToxic closes connections after a random number of bytes between Min and Max.
type cutToxic struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
	// Connections is the number of connections to cut, counted from the first. 0 means all.
	Connections int64 `json:"connections"`

	count atomic.Int64
}

// NewState returns the state of a connection: how many bytes may pass, or -1 for all.
func (c *cutToxic) NewState() any {
	remaining := c.Min + rand.Int64N(c.Max-c.Min+1)
	if n := c.count.Add(1); c.Connections > 0 && n > c.Connections {
		remaining = -1
	}
	return &remaining
}

func (c *cutToxic) Pipe(stub *toxics.ToxicStub) {
	remaining := stub.State.(*int64)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			if *remaining >= 0 && int64(len(chunk.Data)) >= *remaining {
				if *remaining > 0 {
					stub.Output <- &stream.StreamChunk{Data: chunk.Data[:*remaining], Timestamp: chunk.Timestamp}
				}
				stub.Close()
				for chunk != nil { // discards what follows
					chunk = <-stub.Input
				}
				return
			}
			if *remaining > 0 {
				*remaining -= int64(len(chunk.Data))
			}
			stub.Output <- chunk
		}
	}
}

func registerToxics() { toxics.Register("cut", new(cutToxic)) }
