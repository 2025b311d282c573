package gate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumberOfCachedDocumentsIsLimited(t *testing.T) {
	var d documents
	for i := range 10 * maxDocuments {
		key := documentKey{user: string(rune('a' + i))}
		d.put(key, json.RawMessage("{}"))
		_, ok := d.get(key)
		require.True(t, ok)
		require.LessOrEqual(t, len(d.text), maxDocuments)
	}
}
