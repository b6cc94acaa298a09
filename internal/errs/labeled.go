package errs

// A Labeled error has a label for metrics, which msgpush.Outcome returns.
type Labeled struct{ text, label string }

// NewLabeled returns an error with a label.
func NewLabeled(text, label string) error { return &Labeled{text, label} }

func (e *Labeled) Error() string { return e.text }

// Label returns the label.
func (e *Labeled) Label() string { return e.label }
