package follow

// A need says whether a page is needed.
type need int

const (
	notNeeded need = iota
	optional
	required // without it, the poll fails or is cut
)

// attempts returns how often the page is requested.
func (n need) attempts() int {
	if n == optional {
		return 2
	}
	return 5
}

// A nextPage says how the next page is requested.
type nextPage struct {
	need
	mayEnd   bool // an error may mean that the list ends before it
	goesBack bool // if the total falls, earlier pages are requested again
}

func (r *reading[T]) nextPage() nextPage {
	n := r.needOfNextPage()
	return nextPage{
		need:     n,
		mayEnd:   n == optional || len(r.position.known) == 0, // otherwise, known records must follow
		goesBack: r.knownCount == 0,
	}
}

// needOfNextPage applies the rules of first starts, polls and sweeps.
func (r *reading[T]) needOfNextPage() need {
	if !r.position.started {
		return r.needOfFirstStart()
	}
	mayHaveLate := r.hasUnknown && r.knownCount < r.window
	switch {
	case r.isAboveKnown():
		return required
	case (mayHaveLate || r.isSweep) && !r.hasDepth():
		return optional
	}
	return notNeeded
}

func (r *reading[T]) needOfFirstStart() need {
	if len(r.items) >= 2*r.window {
		return notNeeded
	}
	return optional
}

// isAboveKnown reports whether the latest records are new if a known one stands below them.
func (r *reading[T]) isAboveKnown() bool {
	isAnotherLeft := r.knownCount < min(r.window, len(r.position.known))
	return r.knownCount == 0 || isAnotherLeft && r.unknown > 0
}
