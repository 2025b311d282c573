//go:build kernel

package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/test/suites/kernel"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
)

// This test is like TestSnapshotsOfVolumesUnderWritesLoseNoData, except that Linux in a virtual
// machine makes the writes, with native multipath.
func TestSnapshotsOfVolumesWrittenByLinuxLoseNoData(t *testing.T) {
	w := newEnvironment(newTarget(t))
	reports := &reports{t: t, changed: make(chan struct{}), ended: make(chan struct{})}
	var subjects []*subject
	made := make(chan *subject, len(control.WriterVolumes))
	m := kernel.NewMachine(t)
	m.Deadline = time.Hour
	m.Progress = reports.take
	m.Target = func(_ context.Context, c control.TargetCall) (map[string]string, error) {
		if c.Do != control.Make {
			return nil, fmt.Errorf("unknown call %q", c.Do)
		}
		kind := c.Volume
		if !slices.Contains(w.kinds(), kind) {
			kind = "thin"
		}
		s := w.newSubject(kind, c.Volume)
		published := maps.Clone(w.publishContext(s.volume, control.WriterNode))
		published[connect.KeyTargetAddr] = control.Address
		made <- s
		return published, nil
	}
	go func() {
		defer close(reports.ended)
		m.Run(control.Writer, control.SPDK, "nvme_core.multipath=Y")
	}()
	for i := range control.WriterVolumes {
		select {
		case s := <-made:
			s.writer = &guestWriter{reports, i}
			subjects = append(subjects, s)
		case <-reports.ended:
			require.Fail(t, "the machine ended before it wrote")
		}
	}
	w.snapshots(subjects)
}

// This test is like TestGroupSnapshotsAcrossTargetsPreserveWriteOrder, except that Linux in a
// virtual machine makes the writes.
func TestGroupSnapshotsAcrossTargetsPreserveWriteOrderOfLinux(t *testing.T) {
	all := twoTargets(t)
	reports := &reports{t: t, changed: make(chan struct{}), ended: make(chan struct{})}
	made := make(chan string, len(control.OrderedVolumes))
	m := kernel.NewMachine(t)
	m.Deadline = time.Hour
	m.Progress = reports.take
	m.Target = func(_ context.Context, c control.TargetCall) (map[string]string, error) {
		i := slices.Index(control.OrderedVolumes, c.Volume)
		if c.Do != control.Make || i < 0 {
			return nil, fmt.Errorf("unknown call %q of volume %q", c.Do, c.Volume)
		}
		w := all[i%len(all)]
		v := w.create(c.Volume, "thin")
		published := maps.Clone(w.publishContext(v, control.WriterNode))
		published[connect.KeyTargetAddr] = control.Address
		made <- v.VolumeId
		return published, nil
	}
	go func() {
		defer close(reports.ended)
		m.Run(control.Ordered, control.SPDK, "nvme_core.multipath=Y")
	}()
	var sources []string
	for range control.OrderedVolumes { // the guest makes them in this order
		select {
		case id := <-made:
			sources = append(sources, id)
		case <-reports.ended:
			require.Fail(t, "the machine ended before it wrote")
		}
	}
	d := &guestWriter{reports, 0}
	groupsOnSeveralTargets(t, all, sources, d)
	d.stop()
}

// reports holds the guest's latest report and the longest writes.
type reports struct {
	t       *testing.T
	mu      sync.Mutex
	all     []control.Progress // by volume, from the latest report
	longest []time.Duration    // by volume, since guestWriter.longest was called last
	end     bool               // the machine must end
	changed chan struct{}      // closed with each report
	ended   chan struct{}      // closed when the machine has ended
}

func (r *reports) take(p []control.Progress) (end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = p
	r.longest = append(r.longest, make([]time.Duration, len(p)-len(r.longest))...)
	for i := range p {
		r.longest[i] = max(r.longest[i], p[i].Longest)
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return r.end
}

// next waits for a report that was sent after this call. The first report that arrives may have
// been sent earlier, so next waits for two.
func (r *reports) next() {
	r.t.Helper()
	for range 2 {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-r.ended:
			return
		case <-time.After(long):
			require.Fail(r.t, "the guest sends no reports")
		}
	}
}

// A guestWriter is a volume that the guest writes to.
type guestWriter struct {
	*reports
	i int
}

func (w *guestWriter) last() (p control.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.i < len(w.all) {
		p = w.all[w.i]
	}
	return p
}

func (w *guestWriter) acked() uint64 { return w.last().Acked }

func (w *guestWriter) begun() uint64 {
	w.next()
	return w.last().Begun
}

func (w *guestWriter) progress(n uint64) {
	w.t.Helper()
	from := w.acked()
	require.Eventually(w.t, func() bool { return w.acked() >= from+n }, 5*long, 10*time.Millisecond, "the guest's writes make no progress")
}

func (w *guestWriter) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.i >= len(w.reports.longest) {
		return 0
	}
	longest := w.reports.longest[w.i]
	w.reports.longest[w.i] = 0
	return longest
}

func (w *guestWriter) writes() blocks.Stream {
	return blocks.Stream{Seed: uint64(w.i + 1), Blocks: volumeBytes / blocks.Size}
}

// stop ends the machine after one more report, which is the last one.
func (w *guestWriter) stop() {
	w.next()
	w.mu.Lock()
	w.end = true
	w.mu.Unlock()
	<-w.ended
}
