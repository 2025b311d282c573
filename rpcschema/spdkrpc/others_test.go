package spdkrpc

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnknownMembersAreKept(t *testing.T) {
	for text, want := range map[string]BdevDriverSpecific{
		`null`:                        {},
		`{}`:                          {},
		`{"uring":{"filename":"/f"}}`: {Uring: &BdevDriverUring{Filename: "/f"}},
		`{"new": {"a": [1, {}]}, "uring": {"filename": "/f"}, "\u006eull": null}`: {
			Uring: &BdevDriverUring{Filename: "/f"}, Others: map[string]json.RawMessage{"new": json.RawMessage(`{"a": [1, {}]}`), "null": json.RawMessage("null")},
		},
		`{"new":1,"new":2}`: {Others: map[string]json.RawMessage{"new": json.RawMessage("2")}},
	} {
		v := BdevDriverSpecific{Others: map[string]json.RawMessage{"former": json.RawMessage("1")}}
		require.NoError(t, v.UnmarshalJSON([]byte(text)), text)
		assert.Equal(t, want, v, text)
	}
	for _, text := range []string{`[]`, `1`, `{"uring":1}`, `{"new":}`, `{"new":1`, ``} {
		assert.Error(t, new(BdevDriverSpecific).UnmarshalJSON([]byte(text)), text)
	}
}
