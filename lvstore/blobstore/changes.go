package blobstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
)

// A Reading describes the changes between two snapshots, according to the metadata on a device at
// one time. Equal readings have the same Digest.
type Reading struct {
	Super     Super
	StoreUUID string // UUID of the lvstore
	StoreName string
	// Target and Base are the two chains. Each begins with a snapshot, followed by its ancestors.
	// If the reading covers all clusters of Target, Base is nil.
	Target, Base []*Lvol
	// Changed contains a bit for each cluster of the target; cluster i is bit i%8 of byte i/8. A
	// cluster with a zero bit has the same content as in the base or, if there is no base, contains
	// zeros. If the base is smaller than the target, the missing part of the base counts as zeros.
	Changed []byte
	// TargetStart and BaseStart are the first StartBytes bytes of the snapshots' content.
	TargetStart, BaseStart []byte
	Digest                 [sha256.Size]byte // digest of all pages read
}

// StartBytes is the maximum length of Reading.TargetStart and BaseStart.
const StartBytes = 5 * PageSize

// Find searches the metadata pages, starting at page from, for the lvol with this UUID, and returns
// its blob id. size is the device's size in bytes. Find checks only the first page of the blob. If
// Find fails, searched is the number of the first page not searched.
func Find(ctx context.Context, r io.ReaderAt, size int64, uuid string, from int64) (id uint64, searched int64, err error) {
	s, err := readSuper(r, size)
	if err != nil {
		return 0, from, err
	}
	chunk := int64(64)
	buffer := []byte(nil)
	for from < s.MetadataPages {
		if err := ctx.Err(); err != nil {
			return 0, from, err
		}
		n := min(chunk, s.MetadataPages-from)
		if int64(len(buffer)) < n*PageSize {
			buffer = make([]byte, n*PageSize)
		}
		if _, err := r.ReadAt(buffer[:n*PageSize], s.offset(from)); err != nil {
			return 0, from, fmt.Errorf("read metadata pages from %d: %w", from, err)
		}
		for i := range n {
			p := (*page)(buffer[i*PageSize:])
			id := uint64(firstID + from + i)
			b := &blob{attrs: map[string]string{}}
			if !p.zero() && id != s.SuperBlob && b.add(p, id, 0) == nil && b.attrs["uuid"] == uuid {
				return id, from, nil
			}
		}
		from += n
		chunk = min(2*chunk, 1024)
	}
	return 0, from, ErrNoLvol
}

// HasExtentPage reports whether the lvol with this UUID in blob id has an extent page with this
// number. It also returns true for an lvol without extent pages, which lists its clusters directly.
func HasExtentPage(ctx context.Context, r io.ReaderAt, size int64, id uint64, uuid string, number uint64) (bool, error) {
	s, err := readSuper(r, size)
	if err != nil {
		return false, err
	}
	p := &pageReader{super: s, r: r, sum: sha256.New()}
	l, err := p.lvol(ctx, id)
	switch {
	case err != nil:
		return false, err
	case l.UUID != uuid:
		return false, fmt.Errorf("%w: blob %#x is not lvol %s", ErrMetadata, id, uuid)
	case l.blob.runs != nil:
		return true, nil
	case number >= uint64(len(l.blob.table)):
		return false, fmt.Errorf("%w: lvol %s has %d extent pages", ErrMetadata, uuid, len(l.blob.table))
	}
	return l.blob.table[number] != 0, nil
}

// readSuper reads a device's super block, and checks that the blobstore fits into size bytes.
func readSuper(r io.ReaderAt, size int64) (Super, error) {
	s, err := ReadSuper(r)
	if err != nil {
		return s, err
	}
	if s.Bytes == 0 {
		s.Bytes = size
	}
	if s.Bytes > size || s.offset(s.MetadataPages) > size {
		return s, fmt.Errorf("%w: the super block describes %d bytes, but the device has %d", ErrSuperBlock, s.Bytes, size)
	}
	return s, nil
}

// ReadChains reads the chains that begin with the snapshots in blobs target and base, without their
// clusters. If there is no base, base is 0.
func ReadChains(ctx context.Context, r io.ReaderAt, size int64, target, base uint64) (*Reading, error) {
	v, _, err := readChains(ctx, r, size, target, base)
	return v, err
}

// ReadChanges reads which clusters of the snapshot in blob target may differ from those of base, a
// snapshot in the same lvstore. If base is 0, it reads which clusters are allocated. ReadChanges
// reads the clusters of all blobs in both chains down to the common ancestor, below which the
// chains are identical. It reuses the extent pages in kept, and adds those that it reads. kept may
// be nil.
func ReadChanges(ctx context.Context, r io.ReaderAt, size int64, target, base uint64, kept *Kept) (*Reading, error) {
	v, p, err := readDiffering(ctx, r, size, target, base, false, kept)
	if err != nil {
		return nil, err
	}
	if v.TargetStart, err = p.start(ctx, v.Target); err == nil && base != 0 {
		v.BaseStart, err = p.start(ctx, v.Base)
	}
	if err != nil {
		return nil, err
	}
	p.sum.Sum(v.Digest[:0])
	return v, nil
}

// ReadVolumeChanges is like ReadChanges, but blob target may contain a volume, even while hosts
// write to it: SPDK completes a write only after recording the write's newly allocated cluster in
// the device's metadata. A volume's content may change between two readings, so the digest does not
// cover TargetStart and BaseStart.
func ReadVolumeChanges(ctx context.Context, r io.ReaderAt, size int64, target, base uint64, kept *Kept) (*Reading, error) {
	v, p, err := readDiffering(ctx, r, size, target, base, true, kept)
	if err != nil {
		return nil, err
	}
	p.sum.Sum(v.Digest[:0])
	if v.TargetStart, err = p.start(ctx, v.Target); err == nil && base != 0 {
		v.BaseStart, err = p.start(ctx, v.Base)
	}
	return v, err
}

// readDiffering reads the clusters of the lvols that only one of the two chains contains. If volume
// is true, the target may be a volume.
func readDiffering(ctx context.Context, r io.ReaderAt, size int64, target, base uint64, volume bool, kept *Kept) (*Reading, *pageReader, error) {
	v, p, err := readChains(ctx, r, size, target, base)
	if err != nil {
		return nil, nil, err
	}
	p.kept = kept
	if err := v.Suitable(volume); err != nil {
		return nil, nil, err
	}
	v.Changed = make([]byte, (v.Target[0].Clusters+7)/8)
	mark := func(index uint64) {
		if index < v.Target[0].Clusters {
			v.Changed[index/8] |= 1 << (index % 8)
		}
	}
	for _, l := range v.Differing() {
		if err := p.clusters(ctx, l, mark); err != nil {
			return nil, nil, err
		}
	}
	return v, p, nil
}

// Differing returns the lvols that only one of the two chains contains.
func (v *Reading) Differing() (list []*Lvol) {
	in := map[uint64]int{}
	for _, l := range append(append([]*Lvol{}, v.Target...), v.Base...) {
		in[l.ID]++
	}
	for _, chain := range [][]*Lvol{v.Target, v.Base} {
		for _, l := range chain {
			if in[l.ID] > 1 {
				break
			}
			list = append(list, l)
		}
	}
	return list
}

func readChains(ctx context.Context, r io.ReaderAt, size int64, target, base uint64) (*Reading, *pageReader, error) {
	s, err := readSuper(r, size)
	if err != nil {
		return nil, nil, err
	}
	p := &pageReader{super: s, r: r, sum: sha256.New()}
	_, _ = fmt.Fprintf(p.sum, "%+v\n", s)
	v := &Reading{Super: s}
	if v.StoreUUID, v.StoreName, err = p.store(ctx); err != nil {
		return nil, nil, err
	}
	if v.Target, err = p.chain(ctx, target); err == nil && base != 0 {
		v.Base, err = p.chain(ctx, base)
	}
	if err != nil {
		return nil, nil, err
	}
	p.sum.Sum(v.Digest[:0])
	return v, p, nil
}

// store reads the page that describes the lvstore.
func (p *pageReader) store(ctx context.Context) (uuid, name string, err error) {
	id := p.super.SuperBlob
	if p.super.Type != lvstoreType || id < firstID || id >= firstID+uint64(p.super.MetadataPages) {
		return "", "", fmt.Errorf("%w: the blobstore is not an lvstore", ErrMetadata)
	}
	pages, err := p.pages(ctx, []uint32{uint32(id - firstID)})
	if err != nil {
		return "", "", err
	}
	_, _ = p.sum.Write(pages[0][:])
	b := &blob{page: int64(id - firstID), attrs: map[string]string{}}
	if err := b.add(&pages[0], id, 0); err != nil {
		return "", "", fmt.Errorf("%w: the page that describes the lvstore %w", ErrMetadata, err)
	}
	return b.attrs["uuid"], b.attrs["name"], nil
}

// chain reads an lvol and its ancestors.
func (p *pageReader) chain(ctx context.Context, id uint64) (list []*Lvol, err error) {
	seen := map[uint64]bool{p.super.SuperBlob: true}
	for id != 0 {
		if seen[id] || len(list) == maxChain {
			return nil, fmt.Errorf("%w: the chain of snapshots has a loop at blob %#x, or more than %d snapshots", ErrMetadata, id, maxChain)
		}
		seen[id] = true
		l, err := p.lvol(ctx, id)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
		id = l.Parent
	}
	return list, nil
}

// Suitable returns an error if the changes cannot be determined from these chains with reasonable
// effort. If volume is true, the target may be a volume. Suitable does not read the device.
func (v *Reading) Suitable(volume bool) error {
	if err := suitable(v.Target, volume); err != nil {
		return err
	}
	if err := suitable(v.Base, false); err != nil {
		return err
	}
	pages, clusters := int64(0), int64(0) // each page and cluster belongs to exactly one blob
	for _, l := range v.Differing() {
		for _, page := range l.blob.table {
			if page != 0 {
				pages++
			}
		}
		for _, r := range l.blob.runs {
			if r.first != 0 {
				clusters += int64(r.length)
			}
		}
	}
	switch {
	case pages > v.Super.MetadataPages || clusters > v.Super.clusters():
		return fmt.Errorf("%w: the snapshots have %d extent pages and %d clusters without one, more than the lvstore", ErrMetadata, pages, clusters)
	case pages > maxExtentPages:
		return fmt.Errorf("%w: %d extent pages differ, more than %d: make a full backup by reading the snapshot", ErrUnsuitable, pages, maxExtentPages)
	}
	return nil
}

// Memory returns an upper bound, in bytes, for the memory that ReadChanges or ReadVolumeChanges
// uses for these chains, including the returned Reading.
func (v *Reading) Memory() int {
	entries := 0
	for _, chain := range [][]*Lvol{v.Target, v.Base} {
		for _, l := range chain {
			entries += l.blob.entries()
		}
	}
	const extents = maxReads * PageSize * 2
	return 8*entries + extents + int((v.Target[0].Clusters+7)/8)
}

// suitable returns an error if the content of a chain cannot be determined from its clusters. If
// volume is true, the chain may begin with a volume.
func suitable(chain []*Lvol, volume bool) error {
	for i, l := range chain {
		switch b := l.blob; {
		case b.unsettled:
			return fmt.Errorf("%w: SPDK has not finished taking or deleting %s", ErrMetadata, b.name())
		case !b.readOnly && (i > 0 || !volume):
			return unsuitable(b, "is a volume: take a snapshot of it, and request the changes of the snapshot")
		case b.unknown:
			return unsuitable(b, "uses a feature of the format that this version does not support: make a full backup by reading the snapshot")
		case b.external:
			return unsuitable(b, "reads from a bdev outside the lvstore (external snapshot): make a full backup by reading the snapshot")
		case i > 0 && l.Clusters > chain[i-1].Clusters:
			return unsuitable(b, "is larger than the lvol above it, because the volume was shrunk: make a full backup by reading the snapshot")
		}
	}
	return nil
}

// Equal reports whether two readings are based on the same page contents.
func (v *Reading) Equal(other *Reading) bool {
	return v.Digest == other.Digest && bytes.Equal(v.Changed, other.Changed)
}
