package blobstoretest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// These constants are sizes, in bytes or pages.
const (
	PageSize      = 4096
	MetadataStart = 4 // number of pages before the metadata
	PerExtent     = 512
	firstID       = 1 << 32
	none          = 1<<32 - 1
)

// A Store describes an lvstore.
type Store struct {
	UUID, Name    string
	ClusterSize   int64 // in bytes
	Clusters      int64
	MetadataPages int64
	Lvols         []Lvol // lvol i is blob i+1, unless Lvol.Blob is set
}

// An Lvol describes a logical volume or snapshot.
type Lvol struct {
	UUID, Name string
	Blob       int    // number of the blob and of its page; 0 selects the default
	Parent     int    // blob of the parent lvol, or 0
	Clusters   uint64 // size in clusters
	Allocated  []uint64
	At         []uint32 // the allocated clusters on the device, in the order of Allocated; nil for the next free clusters
	Extents    []uint32 // pages for the parts of the extent table; nil for the next free pages

	Writable, External, Taking, Removing bool

	RunLength bool // list the clusters as run lengths
	Continued bool // list the clusters on a second page

	Start []byte // content of the first cluster, if it is allocated
}

// Image returns the content of the whole device.
func (s Store) Image() []byte {
	m := make([]byte, s.Clusters*s.ClusterSize)
	for at, content := range s.Content() {
		copy(m[at:], content)
	}
	return m
}

// Content returns the parts of Image that are not zero, by offset in bytes.
func (s Store) Content() map[int64][]byte {
	b := make([]byte, PageSize)
	copy(b, "SPDKBLOB")
	for at, v := range map[int]uint32{8: 3, 12: PageSize, 28: uint32(s.ClusterSize), 48: MetadataStart, 52: uint32(s.MetadataPages), 88: PageSize, 92: PageSize} {
		le.PutUint32(b[at:], v)
	}
	le.PutUint64(b[20:], firstID)
	copy(b[56:], "LVOLSTORE")
	le.PutUint64(b[80:], uint64(s.Clusters*s.ClusterSize))
	Seal(b)
	w := writer{map[int64][]byte{0: b}, uint32(len(s.Lvols)) + 1, uint32(((MetadataStart+s.MetadataPages)*PageSize + s.ClusterSize - 1) / s.ClusterSize), s.ClusterSize}
	w.page(0, firstID, 0, none, flags(4, 0), text("uuid", s.UUID), text("name", s.Name), descriptor(5, make([]byte, 8)))
	for i, l := range s.Lvols {
		if l.Blob == 0 {
			l.Blob = i + 1
		}
		w.lvol(uint32(l.Blob), l)
	}
	return w.content
}

// Page returns a metadata page of an image. Call Seal after changing it.
func Page(image []byte, n int64) []byte { return image[(MetadataStart+n)*PageSize:][:PageSize] }

// Seal writes the checksum of a page.
func Seal(page []byte) {
	le.PutUint32(page[PageSize-4:], crc32.Checksum(page[:PageSize-4], crc32.MakeTable(crc32.Castagnoli)))
}

// A writer tracks which pages and clusters are free.
type writer struct {
	content map[int64][]byte
	free    uint32 // next free metadata page
	cluster uint32
	size    int64 // size of a cluster, in bytes
}

func (w *writer) lvol(at uint32, l Lvol) {
	id := firstID + uint64(at)
	must, data := uint64(1|2|4), uint64(1)
	if l.Writable {
		data = 0
	}
	if l.External {
		must |= 8
	}
	parts := [][]byte{flags(must, data), text("uuid", l.UUID), text("name", l.Name)}
	if l.Parent != 0 {
		parts = append(parts, attribute(4, "SNAP", le.AppendUint64(nil, firstID+uint64(l.Parent))))
	}
	if l.Taking {
		parts = append(parts, attribute(4, "SNAPTMP", le.AppendUint64(nil, firstID+1)))
	}
	if l.Removing {
		parts = append(parts, attribute(4, "SNAPRM", le.AppendUint64(nil, firstID+1)))
	}
	if l.External {
		parts = append(parts, attribute(4, "EXTSNAP", []byte("another bdev")))
	}
	where := make([]uint32, l.Clusters)
	for n, i := range l.Allocated {
		if l.At != nil {
			where[i] = l.At[n]
		} else {
			where[i] = w.cluster
			w.cluster++
		}
		if i == 0 && len(l.Start) > 0 {
			w.content[int64(where[i])*w.size] = l.Start
		}
	}
	clusters := w.extents(id, where, l.Extents)
	if l.RunLength {
		clusters = runs(where)
	}
	if !l.Continued {
		w.page(at, id, 0, none, append(parts, clusters)...)
		return
	}
	next := w.next()
	w.page(at, id, 0, next, parts...)
	w.page(next, id, 1, none, clusters)
}

func (w *writer) next() uint32 { w.free++; return w.free - 1 }

// extents writes the extent pages and returns the extent table. A range without clusters has no
// page.
func (w *writer) extents(id uint64, where, pages []uint32) []byte {
	table := le.AppendUint64(nil, uint64(len(where)))
	for from := 0; from < len(where); from += PerExtent {
		part := where[from:min(from+PerExtent, len(where))]
		data, used := le.AppendUint32(nil, uint32(from)), uint32(0)
		for _, c := range part {
			data = le.AppendUint32(data, c)
			used |= c
		}
		at := uint32(0)
		if used != 0 {
			if pages != nil {
				at = pages[from/PerExtent]
			} else {
				at = w.next()
			}
			w.page(at, id, 0, none, descriptor(6, data))
		}
		table = le.AppendUint32(le.AppendUint32(table, at), 1)
	}
	return descriptor(5, table)
}

func runs(where []uint32) []byte {
	var data []byte
	for i := 0; i < len(where); {
		n := 1
		for i+n < len(where) && (where[i] == 0 && where[i+n] == 0 || where[i] != 0 && where[i+n] == where[i]+uint32(n)) {
			n++
		}
		data = le.AppendUint32(le.AppendUint32(data, where[i]), uint32(n))
		i += n
	}
	return descriptor(1, data)
}

func (w *writer) page(at uint32, id uint64, sequence, next uint32, parts ...[]byte) {
	p := make([]byte, PageSize)
	w.content[(MetadataStart+int64(at))*PageSize] = p
	le.PutUint64(p, id)
	le.PutUint32(p[8:], sequence)
	copy(p[16:PageSize-8], bytes.Join(parts, nil))
	le.PutUint32(p[PageSize-8:], next)
	Seal(p)
}

var le = binary.LittleEndian

func descriptor(kind byte, data []byte) []byte {
	return append(le.AppendUint32([]byte{kind}, uint32(len(data))), data...)
}

func flags(must, data uint64) []byte {
	return descriptor(3, le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, must), data), 0))
}

func text(name, value string) []byte { return attribute(2, name, []byte(value+"\x00")) }

func attribute(kind byte, name string, value []byte) []byte {
	data := le.AppendUint16(le.AppendUint16(nil, uint16(len(name))), uint16(len(value)))
	return descriptor(kind, append(append(data, name...), value...))
}
