//go:build linux

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitTimeout is the timeout of waits for something that must happen. It is long, since
// the machine may be busy.
const waitTimeout = 5 * time.Minute

// A gateway is a program between the client and the fake server.
type gateway struct {
	t    *testing.T
	addr string // at which it accepts connections
	dir  string // for its files
	args []string

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// newGateway returns a gateway that is not running, and stops it at the end of the
// test. Without the program, it skips the test or, in CI, fails it.
func newGateway(t *testing.T, program, addr string) *gateway {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program) // not in the PATH of every user
	}
	if err != nil {
		text := program + " is not installed: apt-get install " + program
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	dir, err := os.MkdirTemp("", program) //nolint:usetesting // the path of a socket has at most 107 bytes
	require.NoError(t, err)
	g := &gateway{t: t, addr: addr, dir: dir, args: []string{path}}
	t.Cleanup(func() {
		g.kill(syscall.SIGKILL)
		if t.Failed() {
			output, _ := os.ReadFile(g.file("output"))
			t.Logf("%s: %s", program, tail(output, 2000))
		}
		os.RemoveAll(dir)
	})
	return g
}

func (g *gateway) file(name string) string { return filepath.Join(g.dir, name) }

func (g *gateway) configure(text string) string {
	g.t.Helper()
	path := g.file("config")
	require.NoError(g.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// start starts the program and waits until it accepts connections.
func (g *gateway) start() {
	g.t.Helper()
	output, err := os.OpenFile(g.file("output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(g.t, err)
	defer output.Close()
	g.cmd = exec.Command(g.args[0], g.args[1:]...)
	g.cmd.Stdout, g.cmd.Stderr = output, output
	// Pdeathsig stops the program if the test binary is killed.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	require.NoError(g.t, g.cmd.Start())
	exited, cmd := make(chan struct{}), g.cmd
	g.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // kill ends the program; an early end is reported below
	}()
	eventually(g.t, "the gateway accepts connections", func() bool {
		select {
		case <-exited:
			text, _ := os.ReadFile(g.file("output"))
			g.t.Fatalf("%v ended: %s", g.args, tail(text, 2000))
		default:
		}
		conn, err := net.Dial("tcp", g.addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// kill sends a signal to the program and its children, waits until the program has
// ended, and kills the children that are left.
func (g *gateway) kill(signal syscall.Signal) {
	if g.cmd == nil {
		return
	}
	group := -g.cmd.Process.Pid
	_ = syscall.Kill(group, signal) // fails if the program has ended
	select {
	case <-g.exited:
	case <-time.After(waitTimeout):
		g.t.Errorf("%v did not end", g.args)
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // children that outlive the program
	g.cmd = nil
}

// restart stops the program and starts it again. Its connections are closed.
func (g *gateway) restart() {
	g.t.Helper()
	g.kill(syscall.SIGTERM)
	g.start()
}

// signal sends a signal to the program, not to its children.
func (g *gateway) signal(signal syscall.Signal) {
	g.t.Helper()
	require.NoError(g.t, g.cmd.Process.Signal(signal))
}

// eventually fails the test unless a condition holds within waitTimeout.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, waitTimeout)
		}
	}
}

// concurrently calls f with each number below n, up to eight at the same time.
func concurrently(n int, f func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	workers.Wait()
}

// freeAddr returns a loopback address with a free port below the range that the
// kernel uses for outgoing connections, so that the port stays free during a restart.
func freeAddr() string {
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+mathrand.IntN(20_000)))
		if listener, err := net.Listen("tcp", addr); err == nil {
			listener.Close()
			return addr
		}
	}
	panic("no free port between 10000 and 30000")
}

// writeCertificate writes a certificate for the addresses of all gateways and its
// key.
func writeCertificate(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "msgpush integration tests"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := pem.Encode(&text, block); err != nil {
			return err
		}
	}
	return os.WriteFile(path, text.Bytes(), 0o600)
}

func tail(text []byte, length int) []byte { return text[max(0, len(text)-length):] }
