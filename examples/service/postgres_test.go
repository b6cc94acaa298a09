package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
)

// A postgres is a PostgreSQL server in a temporary directory.
type postgres struct {
	bin, dir string
	server   *exec.Cmd
}

// sharedPostgres is the server of all tests. TestMain removes it.
var sharedPostgres struct {
	start  sync.Once
	server *postgres
	err    error
}

var errNoPostgres = errors.New("PostgreSQL is not installed: apt-get install postgresql, or brew install postgresql")

var databases atomic.Int32

// newPostgresDatabase returns the URL of an empty database. Without PostgreSQL, it skips the test,
// except in CI.
func newPostgresDatabase(t *testing.T) string {
	t.Helper()
	shared := &sharedPostgres
	shared.start.Do(func() { shared.server, shared.err = startPostgres() })
	if errors.Is(shared.err, errNoPostgres) && os.Getenv("CI") == "" {
		t.Skip(shared.err)
	}
	require.NoError(t, shared.err)
	db, err := sql.Open("pgx", shared.server.url("postgres"))
	require.NoError(t, err)
	defer db.Close()
	name := fmt.Sprint("service", databases.Add(1))
	_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	return shared.server.url(name)
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
		if err := os.Chown(dir, uid, -1); err != nil {
			return nil, err
		}
	}
	initdb := p.command("initdb", "-D", dir+"/data", "-U", "tester", "-A", "trust", "-E", "UTF8",
		"--no-locale", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	p.server = p.command("postgres", "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	if err := p.server.Start(); err != nil {
		return nil, err
	}
	return p, p.waitUntilReady()
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

func (p *postgres) waitUntilReady() error {
	db, err := sql.Open("pgx", p.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for err = db.PingContext(ctx); err != nil && ctx.Err() == nil; err = db.PingContext(ctx) {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// remove aborts the server, without a shutdown checkpoint.
func (p *postgres) remove() {
	_ = p.server.Process.Signal(syscall.SIGQUIT)
	_ = p.server.Wait()
	_ = os.RemoveAll(p.dir)
}

func (p *postgres) url(name string) string {
	return fmt.Sprintf("postgres://tester@/%s?host=%s", name, url.QueryEscape(p.dir))
}

func TestLostConnectionIsReplaced(t *testing.T) {
	name := newPostgresDatabase(t)
	s, other := openTestStore(t, name), openTestStore(t, name)
	const terminate = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`
	require.NoError(t, other.exec(t.Context(), terminate))
	err := s.add(t.Context(), batchOf("1", failure(1)))
	if err != nil { // it found out that the connection is lost
		err = s.add(t.Context(), batchOf("1", failure(1)))
	}
	require.NoError(t, err)
	assert.Equal(t, []int64{1}, s.alertIDs(t))
}

func TestFailedCommitIsAnError(t *testing.T) {
	s := openTestStore(t, newPostgresDatabase(t))
	const failAtCommit = `CREATE TABLE parent (id BIGINT PRIMARY KEY);
		ALTER TABLE outbox ADD FOREIGN KEY (record_id) REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED`
	require.NoError(t, s.exec(t.Context(), failAtCommit))
	assert.Error(t, s.add(t.Context(), batchOf("1", failure(1))))
}

func TestSignalWhileTheDatabaseIsSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	p := start(t, "-db", "postgres://"+listener.Addr().String()+"/service")
	_, err = listener.Accept() // nothing is sent
	require.NoError(t, err)
	p.terminate(t, syscall.SIGTERM)
}
