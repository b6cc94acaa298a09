//go:build linux

package integration

import (
	"fmt"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// The default transport of the client reads the proxy and the trusted certificates
// from the environment once in a process, so they are the same for all tests.
var (
	certificate string // path of the PEM file with the certificate that transports trust, and its key
	proxyAddr   string // the address at which tests start tinyproxy
)

const proxyUser, proxyPassword = "user", "proxy-password"

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
	proxyAddr = freeAddr()
	proxy := url.URL{Scheme: "http", Host: proxyAddr, User: url.UserPassword(proxyUser, proxyPassword)}
	for name, value := range map[string]string{
		"SSL_CERT_FILE": certificate, "HTTP_PROXY": proxy.String(), "HTTPS_PROXY": proxy.String(), "NO_PROXY": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}

	stderr, written := os.Stderr, filepath.Join(dir, "stderr")
	if os.Stderr, err = os.Create(written); err != nil {
		panic(err)
	}
	log.SetOutput(os.Stderr)
	registerToxics()
	code := m.Run()
	os.Stderr = stderr
	if *tablesFile != "" {
		if err := writeTables(*tablesFile); err != nil {
			panic(err)
		}
	}
	if text, err := os.ReadFile(written); err != nil || len(text) > 0 {
		fmt.Fprintf(stderr, "The tests wrote to stderr (%v):\n%s\n", err, text)
		return 1
	}
	return code
}
