package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if isProcess() {
		exitOn(runProcess(os.Stdin, os.Stdout))
		return
	}
	os.Exit(m.Run())
}

// The test checks that the program works, not the figures.
func TestEachLimiterIsMeasured(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	c := config{Rate: 200, Burst: 10, Callers: 2, Duration: 500 * time.Millisecond}
	var table strings.Builder
	require.NoError(t, compare(t.Context(), &table, c, []string{"2"}))
	for _, name := range []string{nameFleet, nameRedisRate} {
		assert.Regexp(t, `\| `+name+` \| 2 \| \d+ \| \d+ \| 0 \| \d+\.\d\d \| [01]\.\d{3} \|`, table.String())
	}
}
