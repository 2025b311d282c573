package browser

import (
	"encoding/json"
	"os"
	"sort"
	"strings"
	"testing"
	"time"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func traced(p *page, f func()) {
	var mu sync.Mutex
	var all []json.RawMessage
	done := make(chan bool, 1)
	require.NoError(p.t, chromedp.Listen(p.ctx, func(ev any) {
		switch e := ev.(type) {
		case *tracing.EventDataCollected:
			mu.Lock()
			for _, v := range e.Value {
				b, _ := json.Marshal(v)
				all = append(all, b)
			}
			mu.Unlock()
		case *tracing.EventTracingComplete:
			select { case done <- true: default: }
		}
	}))
	p.do(command0(tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"devtools.timeline", "cc", "toplevel", "disabled-by-default-devtools.timeline", "blink", "viz", "gpu"}}}))
	f()
	p.do(command0(tracing.End, cdp.Empty{}))
	select {
	case <-done:
	case <-time.After(time.Minute):
	}
	type ev struct {
		Name, Ph string
		Dur, Ts  float64
		Tdur float64
		Pid, Tid int
		Args     json.RawMessage
	}
	sum, cpu := map[string]float64{}, map[string]float64{}
	n := map[string]int{}
	threads := map[[2]int]string{}
	var evs []ev
	for _, r := range all {
		var e ev
		_ = json.Unmarshal(r, &e)
		if e.Ph == "M" && e.Name == "thread_name" {
			threads[[2]int{e.Pid, e.Tid}] = string(e.Args)
		}
		evs = append(evs, e)
	}
	for _, e := range evs {
		if e.Ph != "X" {
			continue
		}
		k := strings.TrimPrefix(threads[[2]int{e.Pid, e.Tid}], `{"name":`) + " " + e.Name
		sum[k] += e.Dur / 1000
		cpu[k] += e.Tdur / 1000
		n[k]++
	}
	var names []string
	for k := range sum {
		names = append(names, k)
	}
	sort.Slice(names, func(i, j int) bool { return sum[names[i]] > sum[names[j]] })
	for k := range sum {
		if strings.HasSuffix(k, "} RunTask") || strings.HasSuffix(k, "FireAnimationFrame")|| strings.HasSuffix(k, "UpdateLayoutTree")|| strings.HasSuffix(k, "} Layout")|| strings.HasSuffix(k, "} Paint")|| strings.HasSuffix(k, "PrePaint")|| strings.HasSuffix(k, "Layerize")|| strings.HasSuffix(k, "RasterTask") {
			p.t.Logf("per frame cpu %6.2f ms %s", cpu[k]/float64(n[`"CrRendererMain"} ProxyMain::BeginMainFrame`]), k)
		}
	}
	if os.Getenv("ALL") == "" {
		return
	}
	for _, k := range names[:min(70, len(names))] {
		p.t.Logf("%8.1f ms cpu %8.1f  %6d  %s", sum[k], cpu[k], n[k], k)
	}
}

func TestTraceScroll(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.show("volumes")
	p.until(listed)
	for _, v := range []string{"0", "1", "2", "3", "0", "1", "2", "3"} {
		eval[chromedp.Void](p, "window.variant = "+v+"; location.hash = '#/exports'; null")
		p.until(`document.querySelector(".grid").getAttribute("aria-label") === "Exports"`)
		eval[chromedp.Void](p, "location.hash = '#/volumes'; null")
		p.until(`document.querySelector(".grid").getAttribute("aria-label") === "Volumes"`)
		p.until(listed)
		t.Log("VARIANT", v)
		traced(p, func() {
			frames := eval[struct{ Frames, Seconds, Longest, Rows float64 }](p, scroll)
			load, _ := os.ReadFile("/proc/loadavg")
			t.Logf("scrolling through %.0f rows: %.1f frames/s, longest frame %.0f ms, load %s", frames.Rows, frames.Frames/frames.Seconds, frames.Longest, load)
		})
	}
}
