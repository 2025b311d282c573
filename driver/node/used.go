package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// usedVolumes remembers on this node's disk which volumes were staged for writing here: an empty file for each, under the
// volume's id. What a publish context allows was decided when the volume was attached, and so holds for as long as it is
// attached: without a mark a volume that lost its data would be formatted when it is staged again.
//
// A mark stays when the volume is deleted, because nodes do not learn of that. The oldest are removed when there are very many.
// They can no longer matter, since a mark counts as long as the volume is attached to this node, and few are at a time.
type usedVolumes struct{ dir string }

// mostMarks is far above what can be attached to a node since it was last staged.
const mostMarks = 10_000

func (u usedVolumes) path(volumeID string) string { return filepath.Join(u.dir, volumeID) }

func (u usedVolumes) has(volumeID string) (bool, error) {
	_, err := os.Lstat(u.path(volumeID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether volume %s was used on this node: %w", volumeID, err)
	}
	return true, nil
}

// add makes a mark, so that it lasts, or makes it the youngest.
func (u usedVolumes) add(volumeID string) error {
	path, now := u.path(volumeID), time.Now()
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(u.dir, 0o700)
		if err == nil {
			err = writeDurably(path, nil)
		}
		if err == nil {
			err = errors.Join(syncDir(u.dir), u.prune(mostMarks))
		}
	}
	if err != nil {
		return fmt.Errorf("record that volume %s was used on this node: %w", volumeID, err)
	}
	return nil
}

// prune removes the oldest tenth of the marks when there are more than most.
func (u usedVolumes) prune(most int) error {
	entries, err := os.ReadDir(u.dir)
	if err != nil || len(entries) <= most {
		return err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range infos[:len(infos)-most+most/10] {
		if err := os.Remove(filepath.Join(u.dir, info.Name())); err != nil {
			return err
		}
	}
	return nil
}
