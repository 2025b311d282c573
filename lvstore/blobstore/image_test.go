package blobstore

import (
	"bytes"
	"io"
)

// An image is a device in memory, with SPDK's layout.
type image []byte

const (
	clusterSize   = 64 << 10
	metadataStart = 4
	metadataPages = 60
	clusters      = 64
)

func (m image) ReadAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > int64(len(m)) {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(b, m[at:]), nil
}

// newImage creates an lvstore with three lvols. The thin volume "v" (blob 1, extent page 3) has
// clusters 10 and 11. Its parent, snapshot "s" (blob 2, extent page 4), has cluster 12. The thick
// volume "t" (blob 5, continued on page 6) has no extent table.
func newImage() image {
	m := make(image, clusters*clusterSize)
	m.super()
	content, at, err := SuperPage(Super{SuperBlob: firstID, MetadataStart: metadataStart, MetadataPages: metadataPages}, "077791f0-2c50-4b9c-884a-d647fd95528c", "lvs0")
	if err != nil {
		panic(err)
	}
	copy(m[at:], content)
	m.page(1, 0, noPage, attr(xattr, "name", "v\x00"), attr(xattr, "uuid", "uuid-v\x00"), attr(internalXattr, parentAttr, "\x02\x00\x00\x00\x01\x00\x00\x00"), table(600, 3, 0))
	m.extent(1, 3, 0, 0, 10, 11)
	m.page(2, 0, noPage, attr(xattr, "name", "s\x00"), attr(xattr, "uuid", "uuid-s\x00"), table(600, 4, 0))
	m.extent(1, 4, 0, 12)
	m.page(5, 0, 6, attr(xattr, "name", "t\x00"), attr(xattr, "uuid", "uuid-t\x00"))
	m.page(5, 6, noPage, runs(20, 3))
	return m
}

func (m image) super() {
	b := m[:PageSize]
	copy(b, signature)
	for at, v := range map[int]uint32{8: 3, 12: PageSize, 28: clusterSize, 48: metadataStart, 52: metadataPages, 88: 4096, 92: PageSize} {
		le.PutUint32(b[at:], v)
	}
	le.PutUint64(b[20:], firstID)
	copy(b[56:], lvstoreType)
	le.PutUint64(b[80:], clusters*clusterSize)
	le.PutUint32(b[PageSize-4:], checksum(b))
}

// page writes a page of a blob. If at is 0, it writes the blob's first page.
func (m image) page(blob, at int64, next uint32, parts ...[]byte) {
	sequence := uint32(1)
	if at == 0 {
		at, sequence = blob, 0
	}
	m.write(at, firstID+uint64(blob), sequence, next, bytes.Join(parts, nil))
}

func (m image) extent(blob, at int64, first uint32, list ...uint32) {
	data := le.AppendUint32(nil, first)
	for _, c := range append(list, make([]uint32, perExtent-len(list))...) {
		data = le.AppendUint32(data, c)
	}
	m.write(at, firstID+uint64(blob), 0, noPage, desc(extentPage, data))
}

func (m image) write(at int64, id uint64, sequence, next uint32, data []byte) {
	b := m[(metadataStart+at)*PageSize:][:PageSize]
	clear(b)
	le.PutUint64(b, id)
	le.PutUint32(b[8:], sequence)
	copy(b[16:], data)
	le.PutUint32(b[PageSize-8:], next)
	le.PutUint32(b[PageSize-4:], checksum(b))
}

func desc(kind byte, data []byte) []byte {
	return append(le.AppendUint32([]byte{kind}, uint32(len(data))), data...)
}

func attr(kind byte, name, value string) []byte {
	data := le.AppendUint16(nil, uint16(len(name)))
	return desc(kind, append(le.AppendUint16(data, uint16(len(value))), name+value...))
}

func table(n uint64, pages ...uint32) []byte {
	data := le.AppendUint64(nil, n)
	for _, p := range pages {
		data = le.AppendUint32(le.AppendUint32(data, p), 1)
	}
	return desc(extentTable, data)
}

func runs(first, length uint32) []byte {
	return desc(extentRuns, le.AppendUint32(le.AppendUint32(nil, first), length))
}
