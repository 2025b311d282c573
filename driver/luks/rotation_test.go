package luks

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onlyCryptsetup makes the hooks ignore other programs.
func onlyCryptsetup(w *world) {
	for _, hook := range []*func([]string) error{&w.before, &w.after} {
		if do := *hook; do != nil {
			*hook = func(args []string) error {
				if args[0] == "dm-crypt" {
					return nil
				}
				return do(args)
			}
		}
	}
}

// If a passphrase change is interrupted before or after any command, one of the two passphrases
// still opens the device, and a retry leaves only the new passphrase.
func TestRotationSurvivesInterruptions(t *testing.T) {
	prepare := func(t *testing.T) (*LUKS, *world, Volume) {
		l, w := newWorld(t)
		w.header(2, subsystemUsed)
		w.slots = []string{first}
		v := w.volume()
		v.Keys = keysOf(second, first)
		return l, w, v
	}
	l, w, v := prepare(t)
	_, err := l.Open(t.Context(), v)
	require.NoError(t, err)
	assert.Equal(t, []string{second}, w.slots)
	assert.Contains(t, w.log.String(), "passphrase changed")
	steps := len(w.ran)
	require.NoError(t, l.Close(t.Context(), v.Name))
	_, err = l.Open(t.Context(), v)
	require.NoError(t, err, "with a previous passphrase that was removed")
	assert.Equal(t, 1, strings.Count(strings.Join(w.commands(), " "), "luksRemoveKey"))

	for i := range steps {
		for _, late := range []bool{false, true} {
			l, w, v := prepare(t)
			n := 0
			kill := func([]string) error {
				n++
				if n == i+1 {
					return errKilled
				}
				return nil
			}
			if late {
				w.after = kill
			} else {
				w.before = kill
			}
			_, err := l.Open(t.Context(), v)
			assert.True(t, slices.Contains(w.slots, first) || slices.Contains(w.slots, second), "step %d: %v", i, w.slots)
			if err != nil {
				assert.ErrorIs(t, err, errKilled)
			}
			w.before, w.after = nil, nil
			require.NoError(t, w.luks().Close(t.Context(), v.Name))
			_, err = w.luks().Open(t.Context(), v)
			require.NoError(t, err, "step %d", i)
			assert.Equal(t, []string{second}, w.slots, "step %d", i)
		}
	}
}

// The previous passphrase is removed only after the new passphrase has opened the device.
func TestRotationVerifiesTheNewPassphrase(t *testing.T) {
	l, w := newWorld(t)
	w.header(2, subsystemUsed)
	w.slots = []string{first}
	w.after = func(args []string) error {
		if args[0] == "luksAddKey" {
			w.slots = []string{first} // the write of the new header was lost
		}
		return nil
	}
	v := w.volume()
	v.Keys = keysOf(second, first)
	_, err := l.Open(t.Context(), v)
	require.ErrorContains(t, err, "it does not open the device")
	assert.Equal(t, []string{first}, w.slots)
}
