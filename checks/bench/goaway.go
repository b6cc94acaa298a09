package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	goawayCallers  = 16
	goawayRequests = 100 // on one connection
)

// goaway compares calls through an HTTP/2 gateway that closes each connection
// gracefully after 100 requests, as nginx does with keepalive_requests 100.
func goaway(cfg config) (*experiment, error) {
	w := workloads[0]
	service, err := w.service()
	if err != nil {
		return nil, err
	}
	e := &experiment{
		title:   fmt.Sprintf("HTTP/2 with GOAWAY every %d requests: %s, %d callers", goawayRequests, w.name, goawayCallers),
		metrics: []metric{{"calls per second", number}, {"p50", duration}, {"p99", duration}},
	}
	for _, c := range clients() {
		if c.name != nameBaseline && c.name != nameMsgpush {
			continue
		}
		e.entries = append(e.entries, &entry{name: c.name, run: func() (measurement, error) {
			gateway, err := newGateway(service.mail)
			if err != nil {
				return nil, err
			}
			defer gateway.close()
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			defer transport.CloseIdleConnections()
			a, err := c.new("http://"+gateway.listener.Addr().String(), transport)
			if err != nil {
				return nil, err
			}
			latencies, elapsed, err := runConcurrently(goawayCallers, cfg.calls, func() error { return w.call(a) })
			if err != nil {
				return nil, err
			}
			return measurement{
				"calls per second": float64(len(latencies)) / elapsed.Seconds(),
				"p50":              latencies[len(latencies)/2].Seconds(),
				"p99":              latencies[len(latencies)*99/100].Seconds(),
			}, nil
		}})
	}
	return e, nil
}

// A gateway is an HTTP/2 server that sends the same response to every request.
// net/http's server cannot be used: a handler can only set Connection: close, and the
// requests that arrive before the GOAWAY frame is sent are processed, too.
type gateway struct {
	listener net.Listener
	body     []byte
	conns    sync.WaitGroup
	ctx      context.Context // ends with the gateway
	cancel   context.CancelFunc
}

func newGateway(body []byte) (*gateway, error) {
	g := &gateway{body: body}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	listener, err := new(net.ListenConfig).Listen(g.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		g.cancel()
		return nil, err
	}
	g.listener = listener
	g.conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.conns.Go(func() { g.serve(conn) })
		}
	})
	return g, nil
}

func (g *gateway) close() {
	g.listener.Close()
	g.cancel()
	g.conns.Wait()
}

// serve responds to the first requests of a connection, sends GOAWAY and ignores
// later requests.
func (g *gateway) serve(conn net.Conn) {
	stop := context.AfterFunc(g.ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	if framer.WriteSettings() != nil {
		return
	}
	for requests := 0; ; {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame: // a GET has no DATA frames
			if requests++; requests <= goawayRequests {
				err = g.respond(framer, f.StreamID)
			}
			if requests == goawayRequests && err == nil {
				err = framer.WriteGoAway(f.StreamID, http2.ErrCodeNo, nil)
			}
		}
		if err != nil {
			return
		}
	}
}

func (g *gateway) respond(framer *http2.Framer, stream uint32) error {
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, field := range []hpack.HeaderField{
		{Name: ":status", Value: "200"},
		{Name: "content-type", Value: "application/json"},
	} {
		if err := encoder.WriteField(field); err != nil {
			return err
		}
	}
	headers := http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true}
	if err := framer.WriteHeaders(headers); err != nil {
		return err
	}
	return framer.WriteData(stream, true, g.body)
}
