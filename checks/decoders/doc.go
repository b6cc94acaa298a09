// Package decoders contains only tests: with sonic or goccy/go-json as the decoder of WithUnmarshal, a
// client returns the same as without.
package decoders
