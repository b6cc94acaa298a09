package errs

import (
	"fmt"
	"runtime/debug"
)

// A Panic is a panic of another goroutine, whose stack is lost when the panic is re-raised.
type Panic struct {
	Value any
	Stack []byte
}

// Recovered returns the panic of a value that recover has returned, or nil if it is nil. A Panic that was
// re-raised keeps its stack.
func Recovered(value any) *Panic {
	if value == nil {
		return nil
	}
	if p, ok := value.(*Panic); ok {
		return p
	}
	return &Panic{value, debug.Stack()}
}

func (p *Panic) Error() string {
	return fmt.Sprintf("%v (panic of another goroutine)\n\n%s", p.Value, p.Stack)
}

// Unwrap returns the value of the panic if it is an error, such as a runtime.Error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
