package redact_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush/internal/redact"
)

func TestPasswordsAreBlanked(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"member", `{"id":1,"password":"hunter2","note":"kept"}`, `{"id":1,"password":[redacted],"note":"kept"}`},
		{"member in capitals", `{"PASSWORD":"hunter2","note":"kept"}`, `{"PASSWORD":[redacted],"note":"kept"}`},
		{"name that contains it", `{"the smtpPassword (old)":"hunter2"}`, `{"the smtpPassword (old)":[redacted]}`},
		{"name with escapes", `{"p\u0061ss\u0057ord":"hunter2","a":1}`, `{"p\u0061ss\u0057ord":[redacted],"a":1}`},
		{"value with quotes", `{"password":"a\"hunter2","note":"kept"}`, `{"password":[redacted],"note":"kept"}`},
		{"white space", "{\"password\" :\n \"hunter2\" , \"a\":1}", "{\"password\" :\n [redacted] , \"a\":1}"},
		{"object", `{"password":{"old":["hunter2","}"],"new":"hunter2"},"a":1}`, `{"password":[redacted],"a":1}`},
		{"array", `{"passwords":["a","hunter2"],"note":"kept"}`, `{"passwords":[redacted],"note":"kept"}`},
		{"two members", `{"password":"hunter2","a":{"password":1}}`, `{"password":[redacted],"a":{"password":[redacted]}}`},
		{"JSON in a string", `{"error":"{\"password\":\"a hunter2\"}"}`, `{"error":"{\"password\":[redacted]}"}`},

		{"cut string", `{"note":"kept","password":"a hunter2`, `{"note":"kept","password":[redacted]`},
		{"cut string with a quote", `{"note":"kept","password":"a\"hunter2`, `{"note":"kept","password":[redacted]`},
		{"cut string in single quotes", `{"note":"kept","password":'a hunter2`, `{"note":"kept","password":[redacted]`},
		{"cut object", `{"note":"kept","password":{"old":"hunter2","x`, `{"note":"kept","password":[redacted]`},
		{"cut array", `{"note":"kept","password":[hunter2 kept`, `{"note":"kept","password":[redacted]`},
		{"cut before the value", `{"note":"kept","password":`, `{"note":"kept","password":[redacted]`},

		{"value that is not JSON", `kept {"password": hunter2}`, `kept {"password": [redacted]}`},
		{"number before letters", `kept {"password":12hunter2}`, `kept {"password":[redacted]}`},
		{"word before letters", `kept {"password":nullhunter2}`, `kept {"password":[redacted]}`},
		{"longer name, no JSON", `{"password-old":12hunter2,"note":"kept"}`, `{"password-old":[redacted],"note":"kept"}`},
		{"value in single quotes", `{"password": 'a hunter2', "note":"kept"}`, `{"password": [redacted], "note":"kept"}`},
		{"empty string in single quotes", `{"password":'', "a":'kept'}`, `{"password":[redacted], "a":'kept'}`},
		{"comma in single quotes", `{"password":'a, hunter2', "a":1}`, `{"password":[redacted], "a":1}`},
		{"value in single quotes before a space", `{"password":'hunter2' kept`, `{"password":[redacted] kept`},
		{"words without quotes", `{"password": a hunter2, "note":"kept"}`, `{"password": [redacted], "note":"kept"}`},
		{"text after a string", `{"password":"a"hunter2,"note":"kept"}`, `{"password":[redacted],"note":"kept"}`},
		{"tab after a string", "{\"password\":\"hunter2\"\tkept", "{\"password\":[redacted]\tkept"},
		{"line break after words", "{\"password\":hunter2\nkept", "{\"password\":[redacted]\nkept"},
		{"carriage return after words", "{\"password\":hunter2\rkept", "{\"password\":[redacted]\rkept"},
		{"semicolon after words", `{"password":hunter2;kept`, `{"password":[redacted];kept`},
		{"ampersand after words", `{"password":hunter2&kept`, `{"password":[redacted]&kept`},
		{"bracket after words", `[{"password":hunter2]kept`, `[{"password":[redacted]]kept`},

		{"pair", "user=a&password=hunter2&note=kept", "user=a&password=[redacted]&note=kept"},
		{"pair with a colon", "kept, password: hunter2, try again", "kept, password: [redacted], try again"},
		{"pair in quotes", `kept password="a hunter2"`, `kept password=[redacted]`},
		{"pair in single quotes", `kept PASSWORD='a hunter2'`, `kept PASSWORD=[redacted]`},
		{"pair in escaped quotes", `\"password\":\"a hunter2\" kept`, `\"password\":[redacted] kept`},
		{"pair in escaped single quotes", `password=\'a hunter2\' kept`, `password=[redacted] kept`},
		{"pair up to a semicolon", "password=hunter2;kept", "password=[redacted];kept"},
		{"pair with a longer name", "password_new = hunter2 kept", "password_new = [redacted] kept"},
		{"pair with an arrow", "kept [password => hunter2]", "kept [password => [redacted]"},
		{"pair with a thin arrow", "password -> hunter2 kept", "password -> [redacted] kept"},
		{"pair in Chinese", "kept，密码：hunter2", "kept，密码：[redacted]"},
		{"pair with a wide colon", "kept，password：hunter2", "kept，password：[redacted]"},
		{"pair of quoted strings", `["password"=>"hunter2", "a"=>"kept"]`, `["password"=>[redacted], "a"=>"kept"]`},
		{"pair in an assignment", `kept; password := "a hunter2"`, `kept; password := [redacted]`},
		{"pair with a quote in quotes", `kept password => "a \"hunter2"`, `kept password => [redacted]`},
		{"pair with a list", `password => ["a", "hunter2"], kept`, `password => [redacted], kept`},
		{"pair with an object", `password: {old: hunter2}, kept`, `password: [redacted], kept`},
		{"pair that was blanked before", `password=[redacted] kept`, `password=[redacted] kept`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, redact.Passwords(tt.text))
		})
	}
}

// A text may quote JSON that has been quoted before. The text after the password is kept, unless the
// quotes were escaped without the backslashes.
func TestPasswordWithQuotesIsBlankedWhole(t *testing.T) {
	for _, password := range []string{
		`hunter2`, `a"hunter2`, `a\hunter2`, `a'hunter2`, `a b hunter2`, `a,hunter2`, `a}hunter2`, `a]hunter2`, `a&hunter2`,
		"a\nhunter2", `{hunter2`, `a<hunter2`, `"hunter2`, `\"hunter2`, `\\"hunter2`, `hunter2\`, `hunter2\\`, `hunter2"`,
		`","hunter2`, `\","hunter2`, `"}hunter2`, `a"b"c"hunter2`,
	} {
		member, err := json.Marshal(map[string]any{"password": password, "zz": "kept"})
		require.NoError(t, err)
		body := string(member)
		for name, text := range map[string]string{
			"JSON":                          body,
			"JSON in quotes":                "bad body: " + strconv.Quote(body),
			"JSON in quotes, twice":         "bad body: " + strconv.Quote(strconv.Quote(body)),
			"JSON in quotes, three times":   "bad body: " + strconv.Quote(strconv.Quote(strconv.Quote(body))),
			"JSON in single quotes":         "bad body: '" + body + "'",
			"JSON in a string of JSON":      `{"msg":"` + inJSON(body) + `"}`,
			"pair in quotes":                "password=" + strconv.Quote(password) + " kept",
			"pair in quotes, in quotes":     strconv.Quote("password=" + strconv.Quote(password) + " kept"),
			"only the quotes are escaped":   strings.ReplaceAll(body, `"`, `\"`) + " kept",
			"member of a list, in brackets": `{"password":[{"old":` + strconv.Quote(password) + `}],"zz":"kept"}`,
		} {
			clean := redact.Passwords(text)
			assert.NotContains(t, clean, "hunter2", "%s: %s", name, text)
			if name != "only the quotes are escaped" {
				assert.Contains(t, clean, "kept", "%s: %s", name, text)
			}
		}
	}
	assert.Equal(t, `password=[redacted] kept`, redact.Passwords(`password='a'hunter2' kept`))
}

func TestSentencesAboutPasswordsAreUnchanged(t *testing.T) {
	for _, text := range []string{
		"", "password", "wrong password",
		"Proxy password has expired, ask ops (ticket 4711)",
		"the password, or the account, is wrong",
		"passwords.example.com is down",
		"<b>password</b> rejected",
		`{"msg":"password wrong","id":1}`,
	} {
		assert.Equal(t, text, redact.Passwords(text))
	}
}
