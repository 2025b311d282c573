package proxy

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A stream immediately reports notifications of a new target process, even though their numbers
// start from 0 again.
func TestStreamContinuesAfterTargetRestart(t *testing.T) {
	b := newBench(t, "v26.05")
	go b.proxy.target.Watch()
	l := b.proxy.events.Subscribe(0)
	w := b.proxy.observe.Source()
	look := func() (types []string) {
		w.Look(t.Context())
		list, _ := l.Take()
		for _, e := range list {
			types = append(types, e.Type)
		}
		return types
	}
	create := func(name string) {
		g := b.post(fmt.Sprintf(`{"id":1,"method":"bdev_malloc_create","params":{"name":%q,"num_blocks":8,"block_size":512}}`, name))
		require.Equal(t, http.StatusOK, g.StatusCode, g.body)
	}
	look()
	for i := range 9 {
		create(fmt.Sprint("old", i))
	}
	require.Len(t, look(), 9)
	old := b.proxy.target.State().Reconnects
	b.target.Crash()
	require.NoError(t, b.target.Restart())
	require.Eventually(t, func() bool {
		return b.proxy.target.State().Reconnects > old && b.post(version).StatusCode == http.StatusOK
	}, long, time.Millisecond)
	create("early")
	assert.Equal(t, []string{"target_restarted", "gap"}, look(), "what the new process had before")
	assert.Empty(t, look())
	create("new")
	assert.Equal(t, []string{"bdev_register"}, look(), "no notification is lost, and no gap is reported")
}
