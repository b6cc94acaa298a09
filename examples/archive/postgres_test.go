package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
	"example.com/msgpush/examples/internal/clitest"
	"example.com/msgpush/msgpushtest"
)

// A postgres is a PostgreSQL server in a temporary directory.
type postgres struct {
	bin, dir string
	server   *exec.Cmd
}

// shared is the server that most tests share. TestMain removes it.
var shared struct {
	start  sync.Once
	server *postgres
	err    error
}

func sharedPostgres(t *testing.T) *postgres {
	t.Helper()
	shared.start.Do(func() { shared.server, shared.err = startPostgres() })
	requirePostgres(t, shared.err)
	return shared.server
}

var errNoPostgres = errors.New("PostgreSQL is not installed: apt-get install postgresql, or brew install postgresql")

// requirePostgres fails the test if err is not nil. Without PostgreSQL, it skips the
// test, except in CI.
func requirePostgres(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, errNoPostgres) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
}

// startPostgres starts a server that listens on a Unix socket only.
func startPostgres() (*postgres, error) {
	path, _ := exec.LookPath("initdb")
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 { // Debian: not in the PATH
		path = found[len(found)-1]
	}
	if path == "" {
		return nil, errNoPostgres
	}
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		return nil, err
	}
	p := &postgres{bin: filepath.Dir(path), dir: dir}
	if os.Getuid() == 0 { // the server does not run as root
		account, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(account.Uid)
		if err := os.Chown(p.dir, uid, -1); err != nil {
			return nil, err
		}
	}
	initdb := p.command("initdb", "-D", p.dir+"/data", "-U", "tester", "-A", "trust", "-E", "UTF8",
		"--no-locale", "--no-sync")
	out, err := initdb.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return p, p.start()
}

// command returns a command that runs a program of PostgreSQL, not as root.
func (p *postgres) command(program string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(p.bin, program)}, args...)
	if os.Getuid() == 0 {
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = p.dir
	return cmd
}

func (p *postgres) start() error {
	p.server = p.command("postgres", "-D", p.dir+"/data", "-k", p.dir, "-c", "listen_addresses=", "-c", "fsync=off")
	if err := p.server.Start(); err != nil {
		return err
	}
	db, err := sql.Open("pgx", p.dsn("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for err = db.PingContext(ctx); err != nil && ctx.Err() == nil; err = db.PingContext(ctx) {
		pause(ctx, 10*time.Millisecond)
	}
	return err
}

// stop aborts the server without a shutdown checkpoint, like a crash.
func (p *postgres) stop() {
	_ = p.server.Process.Signal(syscall.SIGQUIT)
	_ = p.server.Wait()
}

func (p *postgres) remove() {
	p.stop()
	_ = os.RemoveAll(p.dir)
}

func (p *postgres) dsn(name string) string {
	return fmt.Sprintf("postgres://tester@/%s?host=%s", name, url.PathEscape(p.dir))
}

var created atomic.Int32

// newDatabase creates an empty database.
func (p *postgres) newDatabase(t *testing.T) testDatabase {
	t.Helper()
	name := fmt.Sprint("archive", created.Add(1))
	db, err := sql.Open("pgx", p.dsn("postgres"))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	return openTestDatabase(t, p.dsn(name))
}

func TestDatabaseWithoutUTF8(t *testing.T) {
	server := sharedPostgres(t)
	name := fmt.Sprint("ascii", created.Add(1))
	server.newDatabase(t).exec(t, "CREATE DATABASE "+name+" ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
	db := openTestDatabase(t, server.dsn(name))
	_, env := newService(t, []msgpush.ForwardLog{{ID: 1, RuleName: "严重\x00"}})
	_, stderr, status := clitest.Run(t, env, "-once", "-db", db.dsn)
	require.Zero(t, status, stderr)
	assert.Equal(t, "严重\ufffd", db.logs(t)[1].RuleName)
}

// A countingConn counts round trips: the writes that come first, or after something was read.
type countingConn struct {
	net.Conn
	roundTrips *atomic.Int64
	waiting    atomic.Bool
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.waiting.Store(false)
	return n, err
}

func (c *countingConn) Write(b []byte) (int, error) {
	if !c.waiting.Swap(true) {
		c.roundTrips.Add(1)
	}
	return c.Conn.Write(b)
}

// countRoundTrips starts a proxy of the server. It returns a URL of the proxy for a database.
func (p *postgres) countRoundTrips(t *testing.T, database string) (dsn string, roundTrips *atomic.Int64) {
	t.Helper()
	dir := t.TempDir()
	const socket = "/.s.PGSQL.5432"
	listener, err := net.Listen("unix", dir+socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	roundTrips = new(atomic.Int64)
	forward := func(client net.Conn) {
		defer client.Close()
		conn, err := net.Dial("unix", p.dir+socket)
		if err != nil {
			return
		}
		defer conn.Close()
		server := &countingConn{Conn: conn, roundTrips: roundTrips}
		go func() { _, _ = io.Copy(client, server) }()
		_, _ = io.Copy(server, client)
	}
	go func() {
		for client, err := listener.Accept(); err == nil; client, err = listener.Accept() {
			go forward(client)
		}
	}()
	return fmt.Sprintf("postgres://tester@/%s?host=%s", database, url.PathEscape(dir)), roundTrips
}

func TestAPageIsAtMostTwoRoundTrips(t *testing.T) {
	server := sharedPostgres(t)
	db := server.newDatabase(t)
	dsn, roundTrips := server.countRoundTrips(t, db.query(t, "SELECT current_database()")[0][0])
	srv, env := newService(t, logs(100, 1))
	count := func(pages int64) int64 {
		before := roundTrips.Load()
		srv.SetRecords(msgpushtest.Records{ForwardLogs: logs(100*pages, 1)})
		_, stderr, status := clitest.Run(t, env, "-once", "-db", dsn)
		require.Zero(t, status, stderr)
		return roundTrips.Load() - before
	}
	overhead := count(1)
	assert.LessOrEqual(t, count(20)-overhead, int64(2*19), "with an outbox")
	assert.Len(t, db.query(t, "SELECT id FROM outbox"), 1900)
}
