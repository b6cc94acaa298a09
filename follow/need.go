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
		return optionalAttempts
	}
	return requiredAttempts
}

// needOfNextPage applies the rules of first starts, polls and sweeps.
func (r *reading[T]) needOfNextPage() need {
	mayHaveLate := r.hasUnknown && r.knownCount < r.window
	switch {
	case !r.position.started && len(r.items) < 2*r.window:
		return optional
	case !r.position.started:
		return notNeeded
	case r.isAboveKnown():
		return required
	case (mayHaveLate || r.isSweep) && !r.hasDepth():
		return optional
	}
	return notNeeded
}

// isAboveKnown reports whether the latest records are new if a known one stands below them. If the position has none,
// each record is new.
func (r *reading[T]) isAboveKnown() bool {
	isAnotherLeft := r.knownCount < min(r.window, len(r.position.known))
	return r.knownCount == 0 || isAnotherLeft && r.unknown > 0
}
