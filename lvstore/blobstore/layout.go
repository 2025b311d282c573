package blobstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	// PageSize is the size of a metadata page and of the super block, in bytes.
	PageSize = 4096

	signature   = "SPDKBLOB"
	lvstoreType = "LVOLSTORE"
	newest      = 3 // newest supported version of the super block
	firstID     = 1 << 32
	noPage      = 1<<32 - 1
	perExtent   = 512 // number of clusters that an extent page describes
)

// ErrNoBlobstore means that the device contains no blobstore.
var ErrNoBlobstore = errors.New("there is no blobstore")

// ErrSuperBlock means that the super block is damaged, or has an unknown version or page size.
var ErrSuperBlock = errors.New("the super block cannot be used")

// ErrFormat is an ErrSuperBlock for an undamaged super block with an unknown version or page size.
var ErrFormat = fmt.Errorf("%w: its format is not supported", ErrSuperBlock)

// Super contains the fields of the super block.
type Super struct {
	Version     uint32
	Clean       bool   // whether the target unloaded the blobstore cleanly
	SuperBlob   uint64 // id of the blob that describes how the blobstore is used
	ClusterSize int64  // in bytes
	// position of the first metadata page on the device, in pages
	MetadataStart int64
	MetadataPages int64
	Type          string
	Bytes         int64 // size of the blobstore; 0 if it occupies the whole device
	// RecordsPageSize means that the super block contains the size of metadata pages. Releases
	// before v25.05 did not write that size, and later releases do not add it.
	RecordsPageSize bool
}

var le = binary.LittleEndian

// ReadSuper reads the super block.
func ReadSuper(r io.ReaderAt) (Super, error) {
	b := make([]byte, PageSize)
	if _, err := r.ReadAt(b, 0); err != nil {
		return Super{}, fmt.Errorf("read the super block: %w", err)
	}
	if string(b[:8]) != signature {
		return Super{}, ErrNoBlobstore
	}
	s := Super{
		Version: le.Uint32(b[8:]), Clean: le.Uint32(b[16:]) == 1, SuperBlob: le.Uint64(b[20:]), ClusterSize: int64(le.Uint32(b[28:])),
		MetadataStart: int64(le.Uint32(b[48:])), MetadataPages: int64(le.Uint32(b[52:])),
		Type: string(bytes.TrimRight(b[56:72], "\x00")), Bytes: int64(le.Uint64(b[80:])),
	}
	pageSize := le.Uint32(b[92:])
	s.RecordsPageSize = pageSize != 0
	switch {
	case !intact(b):
		return s, fmt.Errorf("%w: its checksum is wrong", ErrSuperBlock)
	case s.Version == 0 || s.Version > newest:
		return s, fmt.Errorf("%w: it has version %d, but only versions 1 to %d are supported", ErrFormat, s.Version, newest)
	case pageSize != 0 && pageSize != PageSize:
		return s, fmt.Errorf("%w: its metadata pages have %d bytes, but only pages of %d bytes are supported", ErrFormat, pageSize, PageSize)
	case s.MetadataStart == 0 || s.MetadataPages == 0 || s.ClusterSize < PageSize || s.ClusterSize%PageSize != 0 || s.Bytes < 0:
		return s, fmt.Errorf("%w: its values contradict each other", ErrSuperBlock)
	}
	return s, nil
}

// intact reports whether the checksum in a page's last four bytes is correct.
func intact(page []byte) bool { return checksum(page) == le.Uint32(page[PageSize-4:]) }

func checksum(page []byte) uint32 {
	return crc32.Checksum(page[:PageSize-4], crc32.MakeTable(crc32.Castagnoli))
}

// offset returns the position of a metadata page on the device, in bytes.
func (s Super) offset(page int64) int64 { return (s.MetadataStart + page) * PageSize }

func (s Super) clusters() int64 { return s.Bytes / s.ClusterSize }

// A page is a metadata page.
type page [PageSize]byte

func (p *page) id() uint64       { return le.Uint64(p[:]) }
func (p *page) sequence() uint32 { return le.Uint32(p[8:]) }
func (p *page) next() uint32     { return le.Uint32(p[PageSize-8:]) }
func (p *page) intact() bool     { return intact(p[:]) }
func (p *page) zero() bool       { return *p == page{} }

// isExtent reports whether an intact page is an extent page.
func (p *page) isExtent() bool { return p.sequence() == 0 && p[16] == extentPage }

// These constants are the types of descriptors.
const (
	padding       = 0
	extentRuns    = 1
	xattr         = 2
	flags         = 3
	internalXattr = 4
	extentTable   = 5
	extentPage    = 6
)

// A descriptor is one entry of a metadata page.
type descriptor struct {
	kind byte
	data []byte
}

// descriptors parses a page.
func (p *page) descriptors() ([]descriptor, error) {
	var list []descriptor
	for b := p[16 : PageSize-8]; len(b) >= 5; {
		kind, length := b[0], int64(le.Uint32(b[1:]))
		if kind == padding && length == 0 {
			break
		}
		if length > int64(len(b)-5) {
			return nil, fmt.Errorf("a descriptor of type %d has %d bytes, but only %d are left in its page", kind, length, len(b)-5)
		}
		list = append(list, descriptor{kind, b[5 : 5+length]})
		b = b[5+length:]
	}
	return list, nil
}

// extents parses an extent page. first is the blob's index of the first cluster. Unallocated
// clusters are 0.
func (p *page) extents() (first uint32, clusters []uint32, err error) {
	list, err := p.descriptors()
	if err != nil || len(list) != 1 || len(list[0].data) < 4 || len(list[0].data)%4 != 0 {
		return 0, nil, errors.Join(errors.New("it is not an extent page"), err)
	}
	b := list[0].data
	for c := b[4:]; len(c) > 0; c = c[4:] {
		clusters = append(clusters, le.Uint32(c))
	}
	return le.Uint32(b), clusters, nil
}
