package errs

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRecoveredPanicHasItsValueAndStack(t *testing.T) {
	p := recoverFrom(func() { panic(io.EOF) })
	assert.Equal(t, io.EOF, p.Value)
	assert.ErrorIs(t, p, io.EOF)
	assert.Contains(t, p.Error(), "EOF (panic of another goroutine)\n\ngoroutine ")
	assert.Contains(t, p.Error(), "panic_test.go")

	assert.Same(t, p, recoverFrom(func() { panic(p) }), "re-raised, it keeps its stack")
	assert.Nil(t, recoverFrom(func() {}))
}

func recoverFrom(f func()) (p *Panic) {
	defer func() { p = Recovered(recover()) }()
	f()
	return nil
}
