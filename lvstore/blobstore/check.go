package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Finding describes damage.
type Finding struct {
	// Page is the number of the metadata page, counted from 0, or -1 if the finding does not
	// concern a particular page. Offset is the page's position on the device, in bytes.
	Page   int64
	Offset int64
	// What describes the damage and its consequence.
	What string
	// Super is set for the page that describes the lvstore. Without this page, SPDK cannot load any
	// volume.
	Super bool
}

// A Report contains the result of a check.
type Report struct {
	Super    Super
	Pages    int64     // number of metadata pages read
	Blobs    int       // number of volumes and snapshots
	Findings []Finding // empty if no damage was found
	// Allocated is the number of clusters allocated to each volume and snapshot, by UUID.
	Allocated map[string]uint64
}

// Options configures a check.
type Options struct {
	// Quick limits the check to the super block and the page that describes the lvstore, which an
	// unprotected snapshot can destroy.
	Quick bool
	// Passes is the number of times the metadata is checked. Damage counts only if every pass finds
	// it, because a running target changes pages. The default is one pass.
	Passes int
	// Pause is the time between two passes.
	Pause time.Duration
}

// Check looks for damage on a device. size is the device's size in bytes. The error is
// ErrNoBlobstore, ErrSuperBlock, a read error, or the context's error.
func Check(ctx context.Context, r io.ReaderAt, size int64, o Options) (Report, error) {
	report, err := checkOnce(ctx, r, size, o.Quick)
	for range o.Passes - 1 {
		if err != nil && !errors.Is(err, ErrSuperBlock) || err == nil && len(report.Findings) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return report, ctx.Err()
		case <-time.After(o.Pause):
		}
		var again Report
		again, err = checkOnce(ctx, r, size, o.Quick)
		if err == nil && len(report.Findings) > 0 {
			again.Findings = both(report.Findings, again.Findings)
		}
		report = again
	}
	return report, err
}

// both returns the findings that occur in both lists.
func both(a, b []Finding) (list []Finding) {
	seen := map[Finding]bool{}
	for _, f := range a {
		seen[f] = true
	}
	for _, f := range b {
		if seen[f] {
			list = append(list, f)
		}
	}
	return list
}

// A checker makes one pass over a blobstore.
type checker struct {
	Report
	r      io.ReaderAt
	begins []int64          // first pages of blobs
	users  map[uint32]*blob // the blob that uses each extent page
	owners []uint32         // the first page of each cluster's blob, plus 1
	blobs  map[uint64]*blob // blobs by id
}

func checkOnce(ctx context.Context, r io.ReaderAt, size int64, quick bool) (Report, error) {
	super, err := ReadSuper(r)
	if super.Bytes == 0 {
		super.Bytes = size
	}
	if err == nil && (super.Bytes > size || super.offset(super.MetadataPages) > size) {
		err = fmt.Errorf("%w: the super block describes %d bytes, but the device has %d", ErrSuperBlock, super.Bytes, size)
	}
	c := &checker{Report: Report{Super: super, Allocated: map[string]uint64{}}, r: r, users: map[uint32]*blob{}, blobs: map[uint64]*blob{}}
	if err != nil {
		return c.Report, err
	}
	if err := c.superBlob(); err != nil || quick {
		return c.Report, err
	}
	if err := c.scan(ctx); err != nil {
		return c.Report, err
	}
	c.owners = make([]uint32, super.clusters())
	for _, at := range c.begins {
		if err := ctx.Err(); err != nil {
			return c.Report, err
		}
		if err := c.blob(at); err != nil {
			return c.Report, err
		}
	}
	for _, b := range c.blobs {
		if b.parent != 0 && c.blobs[b.parent] == nil {
			c.found(b.page, "%s has a parent, blob %#x, that does not exist: it does not load", b.name(), b.parent)
		}
	}
	return c.Report, nil
}

// maxFindings limits the length of a report. An lvstore with more damage is lost entirely.
const maxFindings = 100

func (c *checker) found(page int64, format string, args ...any) {
	if len(c.Findings) >= maxFindings {
		return
	}
	c.Findings = append(c.Findings, Finding{Page: page, Offset: c.Super.offset(page), What: fmt.Sprintf(format, args...)})
}

func (c *checker) read(at int64) (*page, error) {
	p := new(page)
	if _, err := c.r.ReadAt(p[:], c.Super.offset(at)); err != nil {
		return nil, fmt.Errorf("read metadata page %d: %w", at, err)
	}
	return p, nil
}

// superBlob checks the page that describes the lvstore.
func (c *checker) superBlob() error {
	at := int64(c.Super.SuperBlob) - firstID
	if at < 0 || at >= c.Super.MetadataPages {
		c.found(0, "the super block names blob %#x as the one that describes the lvstore, which is out of range", c.Super.SuperBlob)
		return nil
	}
	p, err := c.read(at)
	if err != nil {
		return err
	}
	c.Pages++
	state := ""
	switch {
	case p.zero():
		state = "is empty"
	case !p.intact():
		state = "has a wrong checksum"
	case p.isExtent():
		state = fmt.Sprintf("was overwritten by an extent page of blob %#x", p.id())
	case p.id() != c.Super.SuperBlob || p.sequence() != 0:
		state = fmt.Sprintf("contains page %d of blob %#x", p.sequence(), p.id())
	}
	if state != "" {
		c.found(at, "the page that describes the lvstore %s: the lvstore will not load when the target starts next", state)
		c.Findings[0].Super = true
	}
	return nil
}

// scan reads all metadata pages, and records the first page of each blob.
func (c *checker) scan(ctx context.Context) error {
	const chunk = 256
	buffer := make([]byte, chunk*PageSize)
	c.Pages = 0
	for from := int64(0); from < c.Super.MetadataPages; from += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := buffer[:min(chunk, c.Super.MetadataPages-from)*PageSize]
		if _, err := c.r.ReadAt(part, c.Super.offset(from)); err != nil {
			return fmt.Errorf("read metadata pages from %d: %w", from, err)
		}
		for i := int64(0); i < int64(len(part))/PageSize; i++ {
			p := (*page)(part[i*PageSize:])
			c.Pages++
			if !p.zero() && p.intact() && p.sequence() == 0 && !p.isExtent() && p.id() == uint64(firstID+from+i) {
				c.begins = append(c.begins, from+i)
			}
		}
	}
	return nil
}

// blob reads the pages of a blob and checks its clusters.
func (c *checker) blob(at int64) error {
	b := &blob{page: at, attrs: map[string]string{}}
	id := uint64(firstID + at)
	for n := uint32(0); ; n++ {
		p, err := c.read(at)
		if err != nil {
			return err
		}
		if !p.intact() || p.id() != id || p.sequence() != n {
			c.found(at, "this page must be page %d of %s, but is not: the blob does not load", n, b.name())
			return nil
		}
		list, err := p.descriptors()
		for i := 0; i < len(list) && err == nil; i++ {
			err = b.parse(list[i])
		}
		if err != nil {
			c.found(at, "page %d of %s is malformed, so the blob does not load: %v", n, b.name(), err)
			return nil
		}
		next := p.next()
		if next == noPage {
			break
		}
		if int64(next) >= c.Super.MetadataPages || int64(n) > c.Super.MetadataPages {
			c.found(at, "%s continues on page %d, which is out of range: it does not load", b.name(), next)
			return nil
		}
		at = int64(next)
	}
	c.blobs[id] = b
	if id != c.Super.SuperBlob {
		c.Blobs++
	}
	allocated, err := c.clusters(b)
	if err != nil {
		return err
	}
	if uuid := b.attrs["uuid"]; uuid != "" && id != c.Super.SuperBlob {
		c.Allocated[uuid] = allocated
	}
	return nil
}

// clusters checks a blob's allocated clusters, and returns their number.
func (c *checker) clusters(b *blob) (allocated uint64, err error) {
	for _, r := range b.runs {
		for i := uint32(0); r.first != 0 && i < r.length && c.own(b, b.page, r.first+i); i++ {
			allocated++
		}
	}
	for i, at := range b.table {
		if at == 0 {
			continue
		}
		if int64(at) >= c.Super.MetadataPages {
			c.found(b.page, "%s lists extent page %d, which is out of range: it does not load", b.name(), at)
			continue
		}
		p, err := c.read(int64(at))
		if err != nil {
			return 0, err
		}
		first, list, err := p.extents()
		switch {
		case !p.intact() || !p.isExtent() || err != nil || uint64(first) != uint64(i)*perExtent:
			c.found(int64(at), "this page must be extent page %d of %s, but is not: the blob does not load", i, b.name())
			continue
		case c.users[at] != nil && !b.unsettled && !c.users[at].unsettled:
			c.found(int64(at), "this page is an extent page both of %s and of %s: they would overwrite each other", c.users[at].name(), b.name())
		}
		// After a snapshot is deleted, its clone owns its extent page. If the snapshot was smaller
		// than the clone, the page describes fewer clusters.
		if begin := uint64(i) * perExtent; b.clusters > begin && uint64(len(list)) < min(perExtent, b.clusters-begin) {
			c.found(int64(at), "extent page %d of %s describes %d clusters, but must describe %d: when the target starts next, %s is smaller or does not load", i, b.name(), len(list), min(perExtent, b.clusters-begin), b.name())
		}
		c.users[at] = b
		for _, cluster := range list {
			if cluster != 0 && c.own(b, int64(at), cluster) {
				allocated++
			}
		}
	}
	return allocated, nil
}

// own records the owner of a cluster. It returns false if the cluster is not a data cluster.
func (c *checker) own(b *blob, at int64, cluster uint32) bool {
	metadata := (c.Super.MetadataStart + c.Super.MetadataPages) * PageSize
	if int64(cluster) >= int64(len(c.owners)) || (int64(cluster)+1)*c.Super.ClusterSize <= metadata {
		c.found(at, "%s has cluster %d, which is not a data cluster", b.name(), cluster)
		return false
	}
	if other := c.blobs[uint64(firstID)+uint64(c.owners[cluster])-1]; other != nil && other != b && !b.unsettled && !other.unsettled {
		c.found(at, "cluster %d belongs both to %s and to %s: they would overwrite each other", cluster, other.name(), b.name())
	}
	c.owners[cluster] = uint32(b.page) + 1
	return true
}
