//go:build linux

package integration

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing"
)

// certificate is the path of a PEM file with the certificate that transports trust, and its key.
// It is the same for all tests, since the default transport of the client reads SSL_CERT_FILE once
// in a process.
var certificate string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run runs the tests. It returns 1 if they write to stderr.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "msgpush")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	certificate = filepath.Join(dir, "certificate.pem")
	if err := writeCertificate(certificate); err != nil {
		panic(err)
	}
	if err := os.Setenv("SSL_CERT_FILE", certificate); err != nil {
		panic(err)
	}

	stderr, written := os.Stderr, filepath.Join(dir, "stderr")
	if os.Stderr, err = os.Create(written); err != nil {
		panic(err)
	}
	log.SetOutput(os.Stderr)
	code := m.Run()
	os.Stderr = stderr
	if text, err := os.ReadFile(written); err != nil || len(text) > 0 {
		fmt.Fprintf(stderr, "The tests wrote to stderr (%v):\n%s\n", err, text)
		return 1
	}
	return code
}
