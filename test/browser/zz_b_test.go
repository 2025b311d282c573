package browser

import (
	"testing"
	"os"

	"github.com/chromedp/chromedp"
)

func TestIntl(t *testing.T) {
	p := newPage(t)
	for range 3 {
		p.do(chromedp.Navigate("about:blank"))
		p.open("assets/none")
		t.Log(eval[[]float64](p, `(() => { const r = []; let t = performance.now(); const m = () => { const n = performance.now(); r.push(Math.round((n - t)*10)/10); t = n; };
		new Intl.Collator("en", {numeric: true}); m();
		new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" }); m();
		new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" }); m();
		(5).toLocaleString("en-US"); m();
		return r })()`))
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("load %s", load)
	}
}
