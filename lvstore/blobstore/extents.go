package blobstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
)

// Extents caches the clusters on snapshots' extent pages, so that a read that ran out of time can
// continue later. SPDK changes these pages only when it deletes the snapshot's parent, or inflates
// or decouples the snapshot. All three operations change the snapshot's parent, which another page
// of the snapshot records. Therefore, an extent page stays in the cache only until another page of
// its lvol changes. Pages of volumes are not cached. The zero value is ready to use. It is safe for
// concurrent use.
type Extents struct {
	mu    sync.Mutex
	lvols map[keptKey]*keptLvol
	pages int    // total of all lvols
	clock uint64 // number of reads
}

// maxKept is the maximum number of extent pages in an Extents: 6 MiB of memory.
const maxKept = 1 << 16

// A keptKey identifies the state of an lvol on a device.
type keptKey struct {
	device string
	heads  [sha256.Size]byte
}

type keptLvol struct {
	pages map[int]*extent // by index in the extent table
	used  uint64          // clock of the last read
}

// An extent is the cached content of an extent page.
type extent struct {
	digest    [sha256.Size]byte // digest of the page
	allocated [perExtent / 8]byte
}

func (e *extent) has(i int) bool { return e.allocated[i/8]>>(i%8)&1 == 1 }

// Kept returns a view of e for one reading. device must identify the device.
func (e *Extents) Kept(device string) *Kept {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lvols == nil {
		e.lvols = map[keptKey]*keptLvol{}
	}
	e.clock++
	return &Kept{extents: e, device: device, clock: e.clock, used: map[keptKey]bool{}}
}

// Kept is the view that one reading has of an Extents. It is not safe for concurrent use.
type Kept struct {
	extents *Extents
	device  string
	clock   uint64
	used    map[keptKey]bool
}

// Forget removes all lvols that this reading has used.
func (k *Kept) Forget() {
	k.extents.mu.Lock()
	defer k.extents.mu.Unlock()
	for key := range k.used {
		k.extents.remove(key)
	}
}

// get returns an extent page of an lvol, or nil if the page is not cached. k may be nil.
func (k *Kept) get(l *Lvol, index int) *extent {
	if k == nil || !l.blob.readOnly {
		return nil
	}
	key := keptKey{k.device, l.heads}
	k.used[key] = true
	k.extents.mu.Lock()
	defer k.extents.mu.Unlock()
	v := k.extents.lvols[key]
	if v == nil {
		return nil
	}
	v.used = k.clock
	return v.pages[index]
}

// put caches an extent page. If the cache is full, put removes the least recently used lvols,
// except those used by this reading or a later one.
func (k *Kept) put(l *Lvol, index int, page *extent) {
	if k == nil || !l.blob.readOnly {
		return
	}
	e := k.extents
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.pages >= maxKept {
		oldest, found := keptKey{}, false
		for key, v := range e.lvols {
			if v.used < k.clock && (!found || v.used < e.lvols[oldest].used) {
				oldest, found = key, true
			}
		}
		if !found {
			return
		}
		e.remove(oldest)
	}
	key := keptKey{k.device, l.heads}
	v := e.lvols[key]
	if v == nil {
		v = &keptLvol{pages: map[int]*extent{}}
		e.lvols[key] = v
	}
	if v.used = k.clock; v.pages[index] == nil {
		e.pages++
	}
	v.pages[index] = page
}

func (e *Extents) remove(key keptKey) {
	if v := e.lvols[key]; v != nil {
		e.pages -= len(v.pages)
		delete(e.lvols, key)
	}
}

// extentPages calls visit with the index of each cluster on an lvol's extent pages, in order.
func (p *pageReader) extentPages(ctx context.Context, l *Lvol, visit func(index uint64)) error {
	table := l.blob.table
	for from := 0; from < len(table); from += maxReads {
		end := min(from+maxReads, len(table))
		known := make([]*extent, end-from)
		var missing []int
		for i := from; i < end; i++ {
			if table[i] == 0 {
				continue
			}
			if known[i-from] = p.kept.get(l, i); known[i-from] == nil {
				missing = append(missing, i)
			}
		}
		read, err := p.readExtents(ctx, l, missing)
		if err != nil {
			return err
		}
		for n, i := range missing {
			if known[i-from], err = p.summarize(l, read[n]); err != nil {
				return err
			}
			p.kept.put(l, i, known[i-from])
		}
		for n, e := range known {
			if e == nil {
				continue
			}
			_, _ = p.sum.Write(e.digest[:])
			for i := range perExtent {
				if e.has(i) {
					visit(uint64(from+n)*perExtent + uint64(i))
				}
			}
		}
	}
	return nil
}

// A readExtent is an extent page that has been read and checked.
type readExtent struct {
	digest   [sha256.Size]byte
	clusters []uint32 // 0 if not allocated
}

// readExtents reads some of an lvol's extent pages, given by their indexes in the table.
func (p *pageReader) readExtents(ctx context.Context, l *Lvol, list []int) ([]readExtent, error) {
	at := make([]uint32, len(list))
	for i, index := range list {
		at[i] = l.blob.table[index]
	}
	pages, err := p.pages(ctx, at)
	if err != nil {
		return nil, err
	}
	found := make([]readExtent, len(pages))
	for i := range pages {
		begin := uint64(list[i]) * perExtent
		from, clusters, err := pages[i].extents()
		if err != nil || !pages[i].intact() || !pages[i].isExtent() || pages[i].next() != noPage || uint64(from) != begin || uint64(len(clusters)) != min(perExtent, l.Clusters-begin) {
			return nil, fmt.Errorf("%w: metadata page %d must be extent page %d of %s, but is not", ErrMetadata, at[i], list[i], l.blob.name())
		}
		found[i] = readExtent{sha256.Sum256(pages[i][:]), clusters}
	}
	return found, nil
}

// summarize returns the clusters listed on an extent page, after checking that they are data
// clusters.
func (p *pageReader) summarize(l *Lvol, r readExtent) (*extent, error) {
	e := &extent{digest: r.digest}
	for i, c := range r.clusters {
		if c == 0 {
			continue
		}
		if err := p.super.checkData(l, c); err != nil {
			return nil, err
		}
		e.allocated[i/8] |= 1 << (i % 8)
	}
	return e, nil
}
