package follow

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExpectation(t *testing.T) {
	type poll struct {
		total   int64
		late    int // records that the poll finds
		isSweep bool
	}
	for name, tt := range map[string]struct {
		polls    []poll
		expected int64
	}{
		"a poll changes nothing":                   {[]poll{{total: 1003}}, 1000},
		"a sweep takes the total":                  {[]poll{{total: 1003, isSweep: true}}, 1003},
		"a late record does not count twice":       {[]poll{{total: 1001}, {total: 1001, late: 1, isSweep: true}}, 1001},
		"a late record explains no other growth":   {[]poll{{total: 1003}, {total: 1003, late: 1, isSweep: true}}, 1003},
		"a stale total of a sweep counts for none": {[]poll{{total: 1003}, {total: 1000, isSweep: true}}, 1003},
		"a deletion counts from the second sweep": {
			[]poll{{total: 1000}, {total: 990, isSweep: true}, {total: 990}, {total: 990, isSweep: true}}, 990,
		},
		"a first sweep after a deletion": {[]poll{{total: 1000}, {total: 990, isSweep: true}}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			e := expectation{Total: 1000}
			for _, p := range tt.polls {
				growth := p.total - e.Total - int64(p.late)
				e.subtract(p.late)
				e.observe(growth, p.isSweep)
				e.Total += int64(p.late)
			}
			assert.Equal(t, tt.expected, e.Total)
		})
	}
}
