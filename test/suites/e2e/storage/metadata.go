package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A metadataWriter writes an lvstore's metadata to the device in SPDK's format, so that the proxy
// can read which clusters a snapshot owns. As on a real target, a snapshot keeps its clusters when
// other snapshots are created or deleted. Clusters that a snapshot takes over from another snapshot
// are moved to it.
//
// The device contains the metadata and the first bytes of each snapshot. The volumes' files contain
// all other bytes.
type metadataWriter struct {
	written map[int64][]byte // by offset
	blobs   map[string]int   // by the snapshot's UUID
	extents map[string][]uint32
	places  map[string]map[uint64]uint32 // clusters on the device
	page    uint32                       // the next free page
	cluster uint32                       // where to start the search for a free cluster
}

func newMetadataWriter() *metadataWriter {
	return &metadataWriter{written: map[int64][]byte{}, blobs: map[string]int{}, extents: map[string][]uint32{}, places: map[string]map[uint64]uint32{}, page: 1}
}

var errMetadataFull = errors.New("the simulated lvstore has no room for more snapshots")

// write writes all pages that have changed.
func (w *metadataWriter) write(m spdktest.StoreMetadata) error {
	content, err := w.content(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(m.File, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for at, old := range w.written {
		if content[at] == nil {
			content[at] = make([]byte, len(old))
		}
	}
	// Extent pages are written before the page that refers to them.
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(content))) {
		if !bytes.Equal(w.written[at], content[at]) {
			if _, err := f.WriteAt(content[at], at); err != nil {
				return err
			}
		}
	}
	w.written = content
	return f.Close()
}

func (w *metadataWriter) content(m spdktest.StoreMetadata) (map[int64][]byte, error) {
	s := blobstoretest.Store{UUID: m.UUID, Name: m.Name, ClusterSize: int64(m.ClusterSize), Clusters: int64(m.Clusters), MetadataPages: int64(m.Pages)}
	if err := w.place(m); err != nil {
		return nil, err
	}
	for _, l := range m.Snapshots {
		start, err := beginning(l.File)
		if err != nil {
			return nil, err
		}
		made := blobstoretest.Lvol{
			UUID: l.UUID, Name: l.Name, Blob: w.blobs[l.UUID], Parent: w.blobs[l.Parent], Clusters: l.Clusters, Allocated: l.Own, External: l.External,
			At: []uint32{}, Extents: w.extents[l.UUID], Start: start,
		}
		for _, i := range l.Own {
			made.At = append(made.At, w.places[l.UUID][i])
		}
		s.Lvols = append(s.Lvols, made)
	}
	return s.Content(), nil
}

// place assigns pages and clusters to each snapshot, and frees the clusters of deleted ones.
func (w *metadataWriter) place(m spdktest.StoreMetadata) error {
	used, places := map[uint32]bool{}, map[string]map[uint64]uint32{}
	for _, l := range m.Snapshots {
		places[l.UUID] = map[uint64]uint32{}
		for _, i := range l.Own {
			if c := w.places[l.UUID][i]; c != 0 {
				places[l.UUID][i], used[c] = c, true
			}
		}
	}
	w.places = places
	first := uint32((uint64(blobstoretest.MetadataStart)+m.Pages)*blobstoretest.PageSize/m.ClusterSize) + 1
	for _, l := range m.Snapshots {
		if w.blobs[l.UUID] == 0 {
			w.blobs[l.UUID] = int(w.page)
			w.page++
			for range (l.Clusters + blobstoretest.PerExtent - 1) / blobstoretest.PerExtent {
				w.extents[l.UUID] = append(w.extents[l.UUID], w.page)
				w.page++
			}
			if uint64(w.page) > m.Pages {
				return fmt.Errorf("%w: its metadata area is full", errMetadataFull)
			}
		}
		for _, i := range l.Own {
			if places[l.UUID][i] != 0 {
				continue
			}
			for tried := uint64(0); w.cluster < first || used[w.cluster]; tried++ {
				if w.cluster++; w.cluster < first || uint64(w.cluster) >= m.Clusters {
					w.cluster = first
				}
				if tried > m.Clusters {
					return fmt.Errorf("%w: all clusters are allocated", errMetadataFull)
				}
			}
			places[l.UUID][i], used[w.cluster] = w.cluster, true
		}
	}
	return nil
}

// startBytes is the number of bytes that the proxy searches for a LUKS header at the beginning of a
// snapshot.
const startBytes = 64 << 10

func beginning(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := make([]byte, startBytes)
	if _, err := io.ReadFull(f, start); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return start, nil
}
