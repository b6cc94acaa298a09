package msgpushtest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRequestMustHaveEachParameterOnce(t *testing.T) {
	tests := []struct {
		name, query string
		msg         string // empty if the query is accepted
	}{
		{"each parameter", "ruleId=301&enabled=false", ""},
		{"another order", "enabled=false&ruleId=301", ""},
		{"second parameter missing", "ruleId=301", "the query has no enabled"},
		{"second parameter empty", "ruleId=301&enabled=", "the query has no enabled"},
		{"second parameter twice", "ruleId=301&enabled=1&enabled=0", `the query parameter "enabled" occurs 2 times`},
		{"third parameter", "ruleId=301&enabled=1&x=1", `the operation has no query parameter "x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/?"+tt.query, nil)
			query, rejected := readQuery(r, []string{"ruleId", "enabled"})
			if tt.msg == "" {
				assert.Nil(t, rejected)
				assert.Equal(t, r.URL.Query(), query)
				return
			}
			assert.Equal(t, &rejection{CodeBadRequest, tt.msg}, rejected)
		})
	}
}
