package browser

import (
	"encoding/json"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/profiler"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"context"
)

func cmd1[P, R any](p *page, c cdp.Command[P, R], params P) (r R) {
	require.NoError(p.t, chromedp.Do(p.ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		var err error
		r, err = cdp.Call(ctx, t, c, params)
		return err
	})))
	return r
}

func topOf(t *testing.T, pr *profiler.Profile) {
	self := map[string]float64{}
	byID := map[int64]*profiler.ProfileNode{}
	for _, n := range pr.Nodes {
		byID[int64(n.ID)] = n
	}
	for i, id := range pr.Samples {
		n := byID[int64(id)]
		self[n.CallFrame.FunctionName+" "+itoa(n.CallFrame.LineNumber)+":"+itoa(n.CallFrame.ColumnNumber)] += float64(pr.TimeDeltas[i]) / 1000
	}
	var names []string
	total := 0.0
	for n, v := range self {
		names = append(names, n)
		total += v
	}
	sort.Slice(names, func(i, j int) bool { return self[names[i]] > self[names[j]] })
	for _, n := range names[:min(28, len(names))] {
		t.Logf("%8.1f ms %s", self[n], n)
	}
	t.Logf("%8.1f ms total", total)
}

func itoa[N ~int64 | ~int](n N) string { b, _ := json.Marshal(n); return string(b) }

func TestProfile(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	for range 2 {
		for _, m := range []string{"bdev_get_bdevs", "nvmf_get_subsystems", "bdev_lvol_get_lvols", "iscsi_get_target_nodes"} {
			start := time.Now()
			r, err := p.world.target.call(m, nil)
			require.NoError(t, err)
			t.Logf("raw %s %d bytes %v", m, len(r), time.Since(start))
		}
	}
	for _, pg := range []string{"volumes", "exports", "volumes"} {
		p.do(chromedp.Navigate("about:blank"))
		prof := os.Getenv("CPU") != ""
		if prof {
			p.do(command0(profiler.Enable, cdp.Empty{}), command0(profiler.Start, cdp.Empty{}))
		}
		p.open("#/" + pg)
		p.until(listed)
		now := eval[float64](p, `performance.now()`)
		if prof {
			topOf(t, cmd1(p, profiler.Stop, cdp.Empty{}).Profile)
		}
		type entry struct {
			Name                                      string
			Start, RequestStart, ResponseStart, End   float64
			Size                                      float64
		}
		for _, e := range eval[[]entry](p, `performance.getEntriesByType("resource").map((e) => ({Name: e.name.slice(-40), Start: e.startTime, RequestStart: e.requestStart, ResponseStart: e.responseStart, End: e.responseEnd, Size: e.encodedBodySize}))`) {
			t.Logf("%5.0f %5.0f %5.0f %5.0f %9.0f %s", e.Start, e.RequestStart, e.ResponseStart, e.End, e.Size, e.Name)
		}
		t.Logf("%s: paint %.0f listed %.0f", pg, eval[float64](p, `performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`), now)
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("load %s", load)
	}
}

func TestProfileScroll(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("volumes")
	p.until(listed)
	for range 4 {
		frames := eval[struct{ Frames, Seconds, Longest, Rows float64 }](p, scroll)
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("scrolling through %.0f rows: %.1f frames/s, longest frame %.0f ms, load %s", frames.Rows, frames.Frames/frames.Seconds, frames.Longest, load)
	}
	p.do(command0(profiler.Enable, cdp.Empty{}), command0(profiler.Start, cdp.Empty{}))
	_ = eval[struct{ Frames, Seconds, Longest, Rows float64 }](p, scroll)
	topOf(t, cmd1(p, profiler.Stop, cdp.Empty{}).Profile)
}
