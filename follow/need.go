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
func (s *scan[T]) needOfNextPage() need {
	mayHaveLate := s.hasUnknown && s.knownCount < s.window
	switch {
	case !s.position.started && len(s.items) < 2*s.window:
		return optional
	case !s.position.started:
		return notNeeded
	case s.isAboveKnown():
		return required
	case (mayHaveLate || s.isSweep) && !s.hasDepth():
		return optional
	}
	return notNeeded
}

// isAboveKnown reports whether the latest records are new if a known one stands below them. If the
// position has none, each record is new.
func (s *scan[T]) isAboveKnown() bool {
	isAnotherLeft := s.knownCount < min(s.window, len(s.position.known))
	return s.knownCount == 0 || isAnotherLeft && s.unknown > 0
}
