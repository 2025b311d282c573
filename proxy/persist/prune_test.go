package persist

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// After keep has been reduced, excess versions are removed, but the newest and the oldest versions
// are kept.
func TestSurplusVersionsAreRemoved(t *testing.T) {
	for keep := 1; keep <= 4; keep++ {
		w := newWorld(t)
		w.save()
		text, err := os.ReadFile(filepath.Join(w.dir, Current))
		require.NoError(t, err)
		var former []string
		for i := range 9 {
			former = append(former, time.Now().UTC().Add(-time.Duration(i+1)*time.Hour).Format(stamp)+".json")
			require.NoError(t, os.WriteFile(filepath.Join(w.dir, former[i]), text, 0o600))
		}
		f, err := OpenFolder(w.dir, keep)
		require.NoError(t, err)
		require.NoError(t, f.prune())
		left, err := f.previous()
		require.NoError(t, err)
		assert.Len(t, left, keep)
		assert.Equal(t, former[0], left[0], "the newest")
		if keep > 2 {
			assert.Equal(t, former[8], left[keep-1], "the oldest")
		}
		require.NoError(t, f.prune())
		again, err := f.previous()
		require.NoError(t, err)
		assert.Equal(t, left, again)
	}
}

// Complete returns false until the target's process has been read, while the process lacks
// something, and for any other process.
func TestCompleteDescribesTheTargetsProcess(t *testing.T) {
	w := newWorld(t)
	assert.False(t, w.saver.Complete(), "not known yet")
	w.save()
	assert.True(t, w.saver.Complete())
	w.target.restart("p2", empty())
	assert.False(t, w.saver.Complete(), "status of the previous process")
	w.save()
	assert.False(t, w.saver.Complete(), "the process lacks saved objects")
}

func TestProcessStartTimeIsParsed(t *testing.T) {
	for text, want := range map[string]time.Time{"1-2-12.5": time.Unix(12, 5), "7.000000008": time.Unix(7, 8), "": {}, "1-2": {}, "1-x.5": {}, "1-5.x": {}, "1-5.": {}} {
		at, known := startOf(text)
		assert.Equal(t, !want.IsZero(), known, text)
		if known {
			assert.True(t, want.Equal(at), text)
		} else {
			assert.Zero(t, at)
		}
	}
}

// If a file cannot be read, every operation that needs it fails and changes nothing.
func TestUnreadableDirectoryChangesNothing(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, w *world){
		"the current file": func(t *testing.T, w *world) {
			require.NoError(t, os.Remove(filepath.Join(w.dir, Current)))
			require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(w.dir, Current)))
		},
		"the directory": func(t *testing.T, w *world) {
			require.NoError(t, os.Rename(w.dir, w.dir+".away"))
			require.NoError(t, os.WriteFile(w.dir, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.save()
			other := time.Now().UTC().Format(stamp) + ".json"
			text, err := os.ReadFile(filepath.Join(w.dir, Current))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(w.dir, other), text, 0o600))
			spoil(t, w)
			for what, do := range map[string]func() error{
				"use":     func() error { return w.folder.Use(other) },
				"prepare": func() error { _, err := w.folder.Prepare(); return err },
				"copy":    func() error { return w.folder.CopyCurrent(filepath.Join(t.TempDir(), "x"), os.Geteuid(), os.Getegid()) },
				"save":    func() error { return w.saver.Save(t.Context(), false) },
			} {
				require.Error(t, do(), what)
			}
			if name == "the directory" {
				_, err = w.folder.List()
				require.Error(t, err)
				_, err = w.folder.Mentions("x")
				require.Error(t, err)
				require.Error(t, w.folder.prune())
				_, err = w.folder.lastGood()
				require.Error(t, err)
				return
			}
			assert.True(t, slices.Contains(w.files(), other))
			list, err := w.folder.List()
			require.NoError(t, err, "the other files are listed")
			assert.NotEmpty(t, list, fmt.Sprint(w.files()))
		})
	}
}
