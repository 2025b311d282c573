package keys

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If the target does not respond to a change, changes to other keys are not delayed, and a call
// that waits for the same key can be canceled.
func TestChangesOfOtherKeysAreNotDelayed(t *testing.T) {
	r, k := newRing(t), New(newFolder(t))
	asked, answer := make(chan struct{}), make(chan struct{})
	hanging := func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		if method == "keyring_file_add_key" {
			close(asked)
			<-answer
		}
		return r.ask(ctx, method, params)
	}
	done := make(chan error)
	go func() { done <- k.Add(t.Context(), hanging, Share{}, "slow", oneSecret) }()
	<-asked
	require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "other", oneSecret))
	require.NoError(t, k.Remove(t.Context(), r.ask, "other"))
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, change := range []func() error{
		func() error { return k.Add(gone, r.ask, Share{}, "slow", otherSecret) },
		func() error { return k.Remove(gone, r.ask, "slow") },
	} {
		require.ErrorIs(t, change(), context.Canceled)
	}
	close(answer)
	require.NoError(t, <-done)
	require.NoError(t, k.Remove(t.Context(), r.ask, "slow"))
}

func TestEachCallerMakesOneChangeAtATime(t *testing.T) {
	k := New(newFolder(t))
	release, err := k.Acquire(t.Context(), "a")
	require.NoError(t, err)
	other, err := k.Acquire(t.Context(), "b")
	require.NoError(t, err)
	other()
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = k.Acquire(gone, "a")
	require.ErrorIs(t, err, context.Canceled)
	next := make(chan error)
	go func() {
		release, err := k.Acquire(t.Context(), "a")
		if err == nil {
			release()
		}
		next <- err
	}()
	release()
	require.NoError(t, <-next)
	assert.Empty(t, k.callers.taken, "no lock is left")
}

func TestSweepKeepsKeysAddedAgain(t *testing.T) {
	r, f := newRing(t), newFolder(t)
	k := New(f)
	old := time.Now().Add(-2 * sweepAfter)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "back.key"), []byte(oneSecret), 0o600))
	require.NoError(t, os.Chtimes(filepath.Join(f.dir, "back.key"), old, old))
	looks := 0
	removed, err := k.Sweep(t.Context(), r.ask, func(string) (bool, error) {
		if looks++; looks == 1 {
			require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "back", oneSecret))
		}
		return false, nil
	})
	require.NoError(t, err)
	assert.Empty(t, removed)
	assert.Equal(t, []string{"back.key"}, f.names(t))
}

// The number of keys is limited. At the limit, existing keys can still be removed and added again.
func TestNumberOfKeysIsLimited(t *testing.T) {
	r, f := newRing(t), newFolder(t)
	for i := range maxKeys {
		require.NoError(t, os.WriteFile(filepath.Join(f.dir, fmt.Sprintf("k%d.key", i)), []byte(oneSecret), 0o600))
	}
	k := New(f)
	var refused *Refusal
	require.ErrorAs(t, k.Add(t.Context(), r.ask, Share{}, "more", oneSecret), &refused)
	assert.Equal(t, syscall.ENOSPC, refused.Errno)
	assert.Equal(t, 4096, maxKeys, "docs/tenants.md and docs/restart.md state this limit")
	require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "k7", oneSecret), "an existing key may be repeated")
	require.NoError(t, k.Remove(t.Context(), r.ask, "k7"))
	require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "more", oneSecret))
}
