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

// usedVolumes records on this node's disk which volumes have been staged for writing here. For each
// volume, the directory dir contains an empty file (a mark) named after the volume's id. The
// publish context of a volume does not change while the volume is attached. If it allows
// formatting, only the mark prevents a volume that has lost its data from being formatted when the
// volume is staged again.
//
// A mark remains after its volume is deleted, because nodes are not notified of deletions. When
// there are more than maxMarks marks, the oldest are removed. This is safe, because a mark matters
// only while its volume is attached to this node, and only a few volumes are attached at a time.
type usedVolumes struct{ dir string }

// maxMarks far exceeds the number of volumes that can be attached to a node.
const maxMarks = 10_000

func (u usedVolumes) path(volumeID string) string { return filepath.Join(u.dir, volumeID) }

func (u usedVolumes) has(volumeID string) (bool, error) {
	_, err := os.Lstat(u.path(volumeID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("check whether volume %s was used on this node: %w", volumeID, err)
	}
	return true, nil
}

// add creates a mark durably. If the volume already has a mark, add makes that mark the newest.
func (u usedVolumes) add(volumeID string) error {
	path, now := u.path(volumeID), time.Now()
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(u.dir, 0o700)
		if err == nil {
			err = writeDurably(path, nil)
		}
		if err == nil {
			err = errors.Join(syncDir(u.dir), u.prune(maxMarks))
		}
	}
	if err != nil {
		return fmt.Errorf("record that volume %s was used on this node: %w", volumeID, err)
	}
	return nil
}

// prune removes the oldest marks if there are more than limit, and then keeps nine tenths of limit.
func (u usedVolumes) prune(limit int) error {
	entries, err := os.ReadDir(u.dir)
	if err != nil || len(entries) <= limit {
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
	for _, info := range infos[:len(infos)-limit+limit/10] {
		if err := os.Remove(filepath.Join(u.dir, info.Name())); err != nil {
			return err
		}
	}
	return nil
}
