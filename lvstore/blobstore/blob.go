package blobstore

import (
	"bytes"
	"fmt"
)

// A blob describes a blob as its metadata pages record it.
type blob struct {
	page   int64 // number of the first page
	attrs  map[string]string
	parent uint64 // id of the parent; 0 if there is none
	// SPDK was creating or deleting this snapshot, so it may share clusters with its clone
	unsettled bool
	runs      []run
	table     []uint32 // numbers of extent pages; 0 for a missing page
	clusters  uint64   // the blob's size in clusters, according to its extent table
	listed    bool     // the blob lists its clusters
	external  bool     // unallocated clusters are read from a bdev outside the blobstore
	readOnly  bool
	unknown   bool // the blob uses a feature of the format that this package does not support
	// to limit memory, the clusters of a blob larger than MaxClusters are not listed
	bounded bool
}

// A run is a sequence of adjacent clusters. If first is 0, the clusters are not allocated.
type run struct{ first, length uint32 }

// These attributes are internal to SPDK.
const (
	parentAttr   = "SNAP"
	externalAttr = "EXTSNAP"
	takingAttr   = "SNAPTMP"
	removingAttr = "SNAPRM"
)

// name returns the volume's name, if any, and the blob's id, for messages.
func (b *blob) name() string {
	text := fmt.Sprintf("blob %#x", uint64(firstID)+uint64(b.page))
	if n, ok := b.attrs["name"]; ok {
		text = fmt.Sprintf("%q (%s)", n, text)
	}
	return text
}

func (b *blob) parse(d descriptor) error {
	short := fmt.Errorf("a descriptor of type %d has an invalid length of %d bytes", d.kind, len(d.data))
	switch d.kind {
	case xattr, internalXattr:
		if len(d.data) < 4 {
			return short
		}
		name, value := int(le.Uint16(d.data)), int(le.Uint16(d.data[2:]))
		if 4+name+value != len(d.data) {
			return short
		}
		b.attribute(d.kind == internalXattr, string(d.data[4:4+name]), d.data[4+name:])
	case extentRuns:
		if len(d.data)%8 != 0 {
			return short
		}
		b.listed = true
		for x := d.data; len(x) > 0; x = x[8:] {
			b.runs = append(b.runs, run{le.Uint32(x), le.Uint32(x[4:])})
		}
	case extentTable:
		if len(d.data) < 8 || len(d.data)%8 != 0 {
			return short
		}
		if b.clusters = le.Uint64(d.data); b.clusters > 1<<32 {
			return fmt.Errorf("its extent table has an impossible size of %d clusters", b.clusters)
		}
		b.listed = true
		if b.bounded && b.clusters > MaxClusters {
			b.table = []uint32{}
			return nil
		}
		for x := d.data[8:]; len(x) > 0; x = x[8:] {
			page, count := le.Uint32(x), le.Uint32(x[4:])
			if page != 0 && count != 1 || uint64(len(b.table))+uint64(count) > b.clusters/perExtent+1 {
				return fmt.Errorf("its extent table has an impossible run of %d at page %d", count, page)
			}
			for range count {
				b.table = append(b.table, page)
			}
		}
	case flags:
		if len(d.data) == 24 {
			must, data := le.Uint64(d.data), le.Uint64(d.data[8:])
			b.external = b.external || must&hasExternalParent != 0
			b.readOnly = data&isReadOnly != 0
			b.unknown = must&^knownFlags != 0
		}
	case padding:
	default:
		return fmt.Errorf("a descriptor has the unknown type %d", d.kind)
	}
	return nil
}

// entries returns how many 32-bit numbers are needed to list the clusters.
func (b *blob) entries() int { return len(b.table) + 2*len(b.runs) }

// Except for isReadOnly, SPDK stores these flags in the field invalid_flags, and does not load a
// blob with an unknown flag there.
const (
	usesExtentTable   = 1 << 2
	hasExternalParent = 1 << 3
	knownFlags        = 1<<4 - 1
	isReadOnly        = 1 << 0 // SPDK_BLOB_READ_ONLY, in data_ro_flags
)

func (b *blob) attribute(internal bool, name string, value []byte) {
	switch {
	case !internal && (name == "uuid" || name == "name"):
		b.attrs[name] = string(bytes.TrimRight(value, "\x00"))
	case name == parentAttr && len(value) == 8:
		b.parent = le.Uint64(value)
	case name == externalAttr:
		b.external = true
	case name == takingAttr || name == removingAttr:
		b.unsettled = true
	}
}
