package blobstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
)

// ErrNoLvol means that no metadata page describes an lvol with this UUID.
var ErrNoLvol = errors.New("the device has no lvol with this UUID")

// ErrMetadata means that the metadata is damaged, or that the target changed it during the read.
var ErrMetadata = errors.New("the metadata on the device is damaged or was being changed")

// ErrUnsuitable means that the metadata is intact, but does not show which clusters differ.
var ErrUnsuitable = errors.New("the changes cannot be read from the metadata")

// An UnsuitableError is an ErrUnsuitable caused by one lvol.
type UnsuitableError struct {
	Blob   uint64 // id of the lvol's blob
	Reason string // what about the lvol is unsuitable, and the remedy, without the names of lvols

	name string
}

func unsuitable(b *blob, format string, args ...any) error {
	return &UnsuitableError{uint64(firstID + b.page), fmt.Sprintf(format, args...), b.name()}
}

func (e *UnsuitableError) Error() string {
	return fmt.Sprintf("%v: %s %s", ErrUnsuitable, e.name, e.Reason)
}

// Unwrap returns ErrUnsuitable.
func (e *UnsuitableError) Unwrap() error { return ErrUnsuitable }

// These constants limit how much is read. The content of a device cannot be trusted, because any
// host may have written it.
const (
	// MaxClusters is the largest size of an lvol in clusters: 64 TiB with clusters of 1 MiB.
	MaxClusters = 1 << 26
	// maxChain is the maximum length of a snapshot chain. SPDK crashes even with shorter chains.
	maxChain = 256
	// maxHeadPages is the maximum number of an lvol's pages, not counting extent pages. An extent
	// table for MaxClusters occupies 257 pages.
	maxHeadPages = 1024
	// maxEntries limits the lists of clusters that a Reading keeps in memory, in 32-bit numbers:
	// one for each extent page, and two for each run.
	maxEntries = 1 << 21
	// maxChainPages is the maximum number of pages of all lvols in the chains, not counting extent
	// pages.
	maxChainPages = 8 * maxHeadPages
	// maxExtentPages is the maximum number of extent pages read for a Reading.
	maxExtentPages = 2 * MaxClusters / perExtent
	// maxReads is the number of extent pages read concurrently.
	maxReads = 32
)

// An Lvol describes a logical volume or snapshot as recorded in the metadata on a device.
type Lvol struct {
	ID       uint64 // id of its blob
	UUID     string
	Name     string
	Parent   uint64 // id of the parent's blob; 0 if there is no parent
	Clusters uint64 // size in clusters, whether allocated or not
	// Counted is set once the lvol's clusters have been read, so that Allocated is their number.
	Counted   bool
	Allocated uint64

	blob  *blob
	heads [sha256.Size]byte // digest of the lvol's pages, except the extent pages
}

// ReadOnly reports whether the lvol is a snapshot or a read-only volume.
func (l *Lvol) ReadOnly() bool { return l.blob.readOnly }

// A pageReader reads the metadata pages for one Reading.
type pageReader struct {
	super Super
	r     io.ReaderAt
	sum   hash.Hash // hash of the pages read
	kept  *Kept     // if nil, all extent pages are read

	entries, heads int // totals for the lvols read so far; see maxEntries and maxChainPages
}

func (p *pageReader) pages(ctx context.Context, list []uint32) ([]page, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pages, errs := make([]page, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, at := range list {
		if int64(at) >= p.super.MetadataPages {
			return nil, fmt.Errorf("%w: there is no metadata page %d", ErrMetadata, at)
		}
		wg.Go(func() {
			if _, err := p.r.ReadAt(pages[i][:], p.super.offset(int64(at))); err != nil {
				errs[i] = fmt.Errorf("read metadata page %d: %w", at, err)
			}
		})
	}
	wg.Wait()
	return pages, errors.Join(errs...)
}

// lvol reads the pages of an lvol, except its extent pages.
func (p *pageReader) lvol(ctx context.Context, id uint64) (*Lvol, error) {
	if id < firstID || id >= firstID+uint64(p.super.MetadataPages) {
		return nil, fmt.Errorf("%w: there is no blob %#x", ErrMetadata, id)
	}
	b := &blob{page: int64(id - firstID), attrs: map[string]string{}, bounded: true}
	at := uint32(id - firstID)
	heads := sha256.New()
	for n := uint32(0); at != noPage; n++ {
		if n >= maxHeadPages {
			return nil, fmt.Errorf("%w: %s has more than %d pages", ErrMetadata, b.name(), maxHeadPages)
		}
		pages, err := p.pages(ctx, []uint32{at})
		if err != nil {
			return nil, err
		}
		_, _ = heads.Write(pages[0][:])
		if err := b.add(&pages[0], id, n); err != nil {
			return nil, fmt.Errorf("%w: page %d of %s %w", ErrMetadata, n, b.name(), err)
		}
		if p.heads++; p.heads > maxChainPages || p.entries+b.entries() > maxEntries {
			return nil, unsuitable(b, "and the snapshots above it list too many clusters: make a full backup by reading the snapshot")
		}
		at = pages[0].next()
	}
	p.entries += b.entries()
	_, _ = p.sum.Write(heads.Sum(nil))
	l := &Lvol{ID: id, UUID: b.attrs["uuid"], Name: b.attrs["name"], Parent: b.parent, Clusters: b.clusters, blob: b}
	heads.Sum(l.heads[:0])
	if b.table == nil {
		for _, r := range b.runs {
			l.Clusters += uint64(r.length)
		}
	}
	switch {
	case l.UUID == "" || l.Name == "":
		return nil, fmt.Errorf("%w: %s is not an lvol", ErrMetadata, b.name())
	case !b.listed:
		return nil, fmt.Errorf("%w: %s has no list of its clusters", ErrMetadata, b.name())
	case b.table != nil && b.runs != nil:
		return nil, fmt.Errorf("%w: %s lists its clusters twice", ErrMetadata, b.name())
	case l.Clusters > MaxClusters:
		return nil, unsuitable(b, "has %d clusters, more than %d: make a full backup by reading the snapshot", l.Clusters, MaxClusters)
	case b.runs == nil && uint64(len(b.table)) != (l.Clusters+perExtent-1)/perExtent:
		return nil, fmt.Errorf("%w: %s has %d clusters and %d extent pages", ErrMetadata, b.name(), l.Clusters, len(b.table))
	}
	return l, nil
}

// add parses page n of the blob with this id.
func (b *blob) add(p *page, id uint64, n uint32) error {
	switch {
	case !p.intact():
		return errors.New("has a wrong checksum")
	case p.id() != id || p.sequence() != n || n == 0 && p.isExtent():
		return errors.New("belongs to another blob")
	}
	list, err := p.descriptors()
	if err != nil {
		return err
	}
	for _, d := range list {
		size, seen := b.clusters, d.kind == extentTable && b.table != nil
		if err := b.parse(d); err != nil {
			return err
		}
		if seen && size != b.clusters {
			return fmt.Errorf("contains two different sizes: %d and %d clusters", size, b.clusters)
		}
	}
	return nil
}

// clusters calls visit with the index of each allocated cluster of an lvol, in order, and sets
// l.Allocated.
func (p *pageReader) clusters(ctx context.Context, l *Lvol, visit func(index uint64)) error {
	l.Allocated = 0
	count := func(index uint64) {
		l.Allocated++
		visit(index)
	}
	index := uint64(0)
	for _, r := range l.blob.runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := uint32(0); r.first != 0 && i < r.length; i++ {
			if uint64(r.first)+uint64(i) >= noPage {
				return fmt.Errorf("%w: %s has a run of %d clusters at %d", ErrMetadata, l.blob.name(), r.length, r.first)
			}
			if err := p.super.checkData(l, r.first+i); err != nil {
				return err
			}
			count(index + uint64(i))
		}
		index += uint64(r.length)
	}
	if err := p.extentPages(ctx, l, count); err != nil {
		return err
	}
	l.Counted = true
	return nil
}

// checkData checks that a cluster of an lvol exists and contains no metadata.
func (s Super) checkData(l *Lvol, cluster uint32) error {
	if int64(cluster) >= s.clusters() || (int64(cluster)+1)*s.ClusterSize <= s.offset(s.MetadataPages) {
		return fmt.Errorf("%w: %s has cluster %d, which is not a data cluster", ErrMetadata, l.blob.name(), cluster)
	}
	return nil
}

// start reads the first StartBytes bytes of a snapshot, page by page.
func (p *pageReader) start(ctx context.Context, chain []*Lvol) ([]byte, error) {
	content := make([]byte, StartBytes)
	for at := int64(0); at < StartBytes; at += PageSize {
		index := uint64(at / p.super.ClusterSize)
		for _, l := range chain {
			cluster, err := p.cluster(ctx, l, index)
			if err != nil {
				return nil, err
			}
			if cluster == 0 {
				continue
			}
			part := content[at : at+PageSize]
			if _, err := p.r.ReadAt(part, int64(cluster)*p.super.ClusterSize+at%p.super.ClusterSize); err != nil {
				return nil, fmt.Errorf("read the beginning of %s: %w", l.blob.name(), err)
			}
			break
		}
	}
	_, _ = p.sum.Write(content)
	return content, nil
}

// cluster returns the location of a cluster near the beginning of an lvol, or 0 if the cluster is
// not allocated.
func (p *pageReader) cluster(ctx context.Context, l *Lvol, index uint64) (found uint32, err error) {
	if index >= l.Clusters {
		return 0, nil
	}
	if l.blob.table != nil {
		if l.blob.table[0] == 0 {
			return 0, nil
		}
		read, err := p.readExtents(ctx, l, []int{0})
		if err != nil {
			return 0, err
		}
		_, _ = p.sum.Write(read[0].digest[:])
		found = read[0].clusters[index]
	} else {
		first := uint64(0)
		for _, r := range l.blob.runs {
			if r.first != 0 && index >= first && index-first < uint64(r.length) {
				found = r.first + uint32(index-first)
				break
			}
			first += uint64(r.length)
		}
	}
	if found == 0 {
		return 0, nil
	}
	return found, p.super.checkData(l, found)
}
