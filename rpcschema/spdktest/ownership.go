package spdktest

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
)

// With Options.WriteMetadata, a snapshot owns the same clusters as a real one: those that were
// written since the previous snapshot of its volume. The simulated target does not see the hosts'
// writes, so it compares the files of the two snapshots. As a result, it misses clusters that were
// overwritten with the same bytes.

// StoreMetadata is an lvstore's metadata.
type StoreMetadata struct {
	File        string // the file that contains the lvstore
	UUID, Name  string
	ClusterSize uint64 // bytes
	Clusters    uint64 // number of clusters in the file, including those of the metadata
	Pages       uint64 // pages of metadata, of 4 KiB
	Snapshots   []SnapshotMetadata
}

// SnapshotMetadata is a snapshot's metadata.
type SnapshotMetadata struct {
	UUID, Name string
	Parent     string // UUID of the parent snapshot, or ""
	External   bool   // the snapshot reads from a bdev outside the lvstore
	Clusters   uint64
	Own        []uint64 // clusters that the snapshot does not read from its parent
	File       string   // the file that contains all of the snapshot's bytes
}

func (e *engine) writesMetadata(s *storeRecord) bool {
	return e.target.opts.WriteMetadata != nil && e.dir != nil && s.Base != ""
}

// writeMetadata writes the metadata of an lvstore, with all snapshots.
func (e *engine) writeMetadata(s *storeRecord) error {
	if !e.writesMetadata(s) {
		return nil
	}
	m := StoreMetadata{
		File: s.Base, UUID: s.UUID, Name: s.Name, ClusterSize: s.ClusterSize, Clusters: s.MetaClusters + s.TotalClusters, Pages: s.MetaPages,
	}
	for _, l := range s.sorted() {
		if l.ReadOnly {
			m.Snapshots = append(m.Snapshots, SnapshotMetadata{
				UUID: l.UUID, Name: l.Name, Parent: l.Parent, External: l.External != "", Clusters: l.Clusters, Own: slices.Clone(l.Own), File: e.dir.dataOf(s, l.UUID),
			})
		}
	}
	return e.target.opts.WriteMetadata(m)
}

// own determines the clusters of a volume that is becoming read-only. The volume's data must be
// complete.
func (e *engine) own(s *storeRecord, r *lvolRecord) error {
	if !e.writesMetadata(s) {
		return nil
	}
	own, err := e.dir.differing(s, r)
	if err != nil {
		return err
	}
	r.Own = nil
	for i := range r.Clusters {
		if !r.Thin || own[i] {
			r.Own = append(r.Own, i)
		}
	}
	r.Allocated = uint64(len(r.Own))
	return nil
}

// takeOverOwn adds the clusters of a snapshot's deleted parent to the snapshot.
func (l *lvol) takeOverOwn(deleted *lvol) {
	if l.ReadOnly && deleted.Own != nil {
		own := map[uint64]bool{}
		for _, i := range slices.Concat(l.Own, deleted.Own) {
			own[i] = i < l.Clusters
		}
		maps.DeleteFunc(own, func(_ uint64, within bool) bool { return !within })
		l.Own = slices.Sorted(maps.Keys(own))
		l.Allocated = uint64(len(l.Own))
	}
}

// differing returns the clusters of a volume whose bytes differ from its parent's. Without a
// parent, it returns the clusters that are not holes.
func (d *dataDir) differing(s *storeRecord, l *lvolRecord) (map[uint64]bool, error) {
	own, err := os.Open(d.dataOf(s, l.UUID))
	if err != nil {
		return nil, err
	}
	defer own.Close()
	found := map[uint64]bool{}
	size := int64(s.ClusterSize)
	touch := func(start, length int64) error {
		for i := start / size; i <= (start+length-1)/size; i++ {
			found[uint64(i)] = true
		}
		return nil
	}
	whole := int64(l.Clusters) * size
	if err := eachExtent(own, whole, touch); err != nil || l.Parent == "" {
		return found, err
	}
	parent, err := os.Open(d.dataOf(s, l.Parent))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := eachExtent(parent, whole, touch); err != nil {
		return nil, err
	}
	mine, before := make([]byte, size), make([]byte, size)
	for i := range found {
		if err := errors.Join(readPadded(own, mine, int64(i)*size), readPadded(parent, before, int64(i)*size)); err != nil {
			return nil, err
		}
		if bytes.Equal(mine, before) {
			delete(found, i)
		}
	}
	return found, nil
}
