package msgpush_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/msgpush"
)

func TestUnimplementedOperationsSendNothing(t *testing.T) {
	client := newClient(t, failOnRequest(t))
	stubs := map[string]func(context.Context) error{
		"message rule detail":                 client.ForwardRuleDetail,
		"message rule create":                 client.ForwardRuleCreate,
		"message rule modify":                 client.ForwardRuleModify,
		"message rule delete":                 client.ForwardRuleDelete,
		"message rule enable/disable":         client.ForwardRuleSetEnabled,
		"message rule test":                   client.ForwardRuleTest,
		"message rule get mode":               client.ForwardRuleMode,
		"message rule set mode":               client.ForwardRuleSetMode,
		"trigger record detail":               client.ForwardLogDetail,
		"webhook channel list":                client.WebhookList,
		"webhook channel detail":              client.WebhookDetail,
		"webhook channel create":              client.WebhookCreate,
		"webhook channel modify":              client.WebhookModify,
		"enterprise application channel list": client.EnterpriseAppList,
		"mail channel list":                   client.MailList,
		"access key obtain":                   client.AccessKeyObtain,
	}
	for _, op := range msgpush.Operations() {
		if op.Specified() || op.Name == "" {
			continue
		}
		t.Run(op.String(), func(t *testing.T) {
			require.Contains(t, stubs, op.String())
			err := stubs[op.String()](t.Context())
			delete(stubs, op.String())
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			var unimplemented *msgpush.UnimplementedError
			require.ErrorAs(t, err, &unimplemented)
			assert.Equal(t, op, unimplemented.Operation)
			assert.EqualError(t, err, "msgpush: "+op.String()+": not implemented, since the API document only names it: use msgpush.Call if you know its path")
		})
	}
	assert.Empty(t, stubs, "methods without an operation")
}

func TestUnimplementedOperationsAreDocumentedAsExperimental(t *testing.T) {
	client := reflect.TypeFor[*msgpush.Client]()
	stubs := 0
	_, p := parsePackage(t, ".")
	for _, typ := range p.Types {
		if typ.Name != "Client" {
			continue
		}
		for _, method := range typ.Methods {
			m, ok := client.MethodByName(method.Name)
			require.True(t, ok)
			if m.Type.NumIn() != 2 || m.Type.NumOut() != 1 {
				continue // not the signature of a stub
			}
			stubs++
			doc := strings.Join(strings.Fields(method.Doc), " ")
			assert.True(t, strings.HasPrefix(doc, method.Name+" is not implemented and returns an [*UnimplementedError]"), doc)
			assert.Contains(t, doc, "Experimental: its signature will change.")
		}
	}
	named := 0
	for _, op := range msgpush.Operations() {
		if op.Name != "" && !op.Specified() {
			named++
		}
	}
	assert.Equal(t, named, stubs)
}

func TestOperationString(t *testing.T) {
	assert.Equal(t, "message rule list", msgpush.Operation{Group: "message rule", Name: "list"}.String())
	assert.Equal(t, "friends", fmt.Sprint(msgpush.Operation{Group: "friends"}))
}

func TestOperationsReturnsNewSlice(t *testing.T) {
	first := msgpush.Operations()
	first[0].Path = "/changed"
	assert.Equal(t, "/api/open/mail/detail", msgpush.Operations()[0].Path)
}
