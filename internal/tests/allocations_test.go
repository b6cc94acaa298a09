package tests_test

// Redaction takes time, so only the first 64 KiB of a msg, a header or a cause are kept and
// redacted. Data is redacted completely.
func TestRedactionIsLimitedToFirst64KiB(t *testing.T) {
	const limit = 64 << 10
	for _, key := range []string{strings.Repeat("0", 64) + "1", fixtures.TestKey} {
		text := strings.Repeat(key[:len(key)-1], 3<<20/len(key)) // almost a key, at each offset or many times
		response := fixtures.Respond(502, `{"code":7,"msg":"`+text+`"}`, "X-Text", text)
		apiErr := fixtures.OnlyError[*msgpush.APIError](t, mailError(t, key, response))
		assert.LessOrEqual(t, len(apiErr.Msg), limit)
		assert.LessOrEqual(t, len(apiErr.Header.Get("X-Text")), limit)

		client := fixtures.NewClientWithKey(t, key, fixtures.Fail(errors.New(text)))
		var err error
		allocated := fixtures.BytesAllocated(func() { _, err = client.MPList(t.Context(), msgpush.PageRequest{}) })
		fixtures.OnlyError[*msgpush.RequestError](t, err)
		assert.Less(t, allocated, uint64(len(text)), "the text was copied")
	}
}
