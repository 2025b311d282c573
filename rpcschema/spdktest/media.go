package spdktest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
)

// A storeRecord is an lvstore's metadata on its medium.
type storeRecord struct {
	UUID          string
	Name          string
	Base          string // file of the AIO bdev; "" for a medium that a crash destroys
	ClusterSize   uint64
	BlockSize     uint64
	TotalClusters uint64 // number of data clusters
	MetaClusters  uint64
	MetaPages     uint64 // 4 KiB each
	MaxClusters   uint64 // the maximum number of clusters that the metadata area can describe
	lvols         map[string]*lvolRecord
	nextOrder     int
}

// An lvolRecord is a logical volume's metadata on its medium.
type lvolRecord struct {
	UUID     string
	Name     string
	Order    int // position in the order of creation
	Clusters uint64
	// Allocated is the number of allocated clusters, which are always the volume's first ones. This
	// is sufficient because the simulation only ever allocates all clusters, takes over a parent's
	// clusters, or removes clusters at the end.
	Allocated uint64
	Thin      bool
	ReadOnly  bool
	Snapshot  bool     // the volume has had clones
	Own       []uint64 // the snapshot's clusters if metadata is written: see ownership.go
	Parent    string   // UUID of its parent snapshot
	External  string   // UUID of its external parent bdev
	Written   string   // UUID of the lvstore that a host has written into the volume
	// superblock is the superblock of the RAID that a host has written into the volume, or into the
	// volume that this volume is a copy of.
	superblock superblock
}

// media holds the contents of the simulated host's disks, which survive a crash of the target.
type media struct {
	mu     sync.Mutex
	stores map[string]*storeRecord
}

func newMedia() *media { return &media{stores: map[string]*storeRecord{}} }

func (m *media) put(s *storeRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stores[s.UUID] = s
}

func (m *media) drop(s *storeRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stores, s.UUID)
}

func (m *media) get(uuid string) (*storeRecord, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.stores[uuid]
	return s, ok
}

// loseMemory removes the lvstores whose medium is only memory.
func (m *media) loseMemory(d *dataDir) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.stores {
		if s.Base != "" {
			continue
		}
		delete(m.stores, id)
		if err := d.removeStore(s); err != nil {
			return err
		}
	}
	return nil
}

// sorted returns the volumes in order of creation.
func (s *storeRecord) sorted() []*lvolRecord {
	list := make([]*lvolRecord, 0, len(s.lvols))
	for _, l := range s.lvols {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *lvolRecord) int { return cmp.Compare(a.Order, b.Order) })
	return list
}

// A mark at the start of a file shows that the file contains an lvstore. As with a blobstore's
// super block, overwriting the mark destroys the lvstore. If the target also writes metadata, the
// real super block is at the start, and the mark is at MarkOffset.
const markPrefix = "spdktest lvstore "

// MarkOffset is the offset of the mark in a file that contains an lvstore with metadata: the second
// block.
const MarkOffset = markSize

const markSize = 4096

func (t *Target) markOffset() int64 {
	if t.opts.WriteMetadata != nil {
		return MarkOffset
	}
	return 0
}

func (t *Target) writeMark(path, uuid string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("mark %s as a lvstore: %w", path, err)
	}
	mark := make([]byte, markSize)
	if uuid != "" {
		copy(mark, markPrefix+uuid)
	}
	_, err = f.WriteAt(mark, t.markOffset())
	return cmp.Or(err, f.Close())
}

// readMark returns the UUID of the lvstore on a file, or "".
func (t *Target) readMark(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	mark := make([]byte, len(markPrefix)+36)
	if _, err := f.ReadAt(mark, t.markOffset()); err != nil {
		return ""
	}
	uuid, ok := bytes.CutPrefix(mark, []byte(markPrefix))
	if !ok {
		return ""
	}
	return string(uuid)
}
