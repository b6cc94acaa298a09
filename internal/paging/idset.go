package paging

// An IDSet holds ids, one bit each: the ids from 64·n to 64·n+63 share a word.
type IDSet map[int64]uint64

// Add adds an id and reports whether it is new.
func (s IDSet) Add(id int64) bool {
	word, bit := s[id>>6], uint64(1)<<(id&63)
	s[id>>6] = word | bit
	return word&bit == 0
}

// Has reports whether an id was added.
func (s IDSet) Has(id int64) bool {
	bit := uint64(1) << (id & 63)
	return s[id>>6]&bit != 0
}
