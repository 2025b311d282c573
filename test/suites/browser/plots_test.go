package browser

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
)

// fewSamples replaces the I/O histories with histories that have the given number of samples. Every
// other sample has no latencies.
const fewSamples = `(() => {
	window.realFetch ??= window.fetch;
	window.fetch = async (path, init) => {
		const body = String(init?.body ?? "");
		if (!body.includes('"spdkgate_get_io_history"') || !body.includes('"params"')) return window.realFetch(path, init);
		const samples = Array.from({length: %d}, (_, i) => ({time: Math.floor(Date.now() / 1000) - 60 * i, read_ios_per_sec: 100, write_ios_per_sec: 50,
			read_bytes_per_sec: 409600, write_bytes_per_sec: 204800, read_latency_us: i & 1 ? 0 : 200, write_latency_us: i & 1 ? 0 : 300})).reverse();
		return new Response(JSON.stringify({jsonrpc: "2.0", id: JSON.parse(body).id, result: [{name: "any", histogram: "off", samples}]}));
	};
})()`

// drawn returns an expression that counts the pixels in the color of reads in one of a volume's
// plots.
func drawn(plot int) string {
	return `(() => {
	const canvas = document.querySelectorAll(".panel .io .plot canvas")[` + strconv.Itoa(plot) + `], probe = document.createElement("span");
	if (!canvas) return 0;
	probe.style.color = "var(--line-a)";
	document.body.append(probe);
	const wanted = getComputedStyle(probe).color.match(/\d+/g).map(Number);
	probe.remove();
	const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
	let found = 0;
	for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && wanted.every((c, k) => Math.abs(c - data[i + k]) < 12)) found++;
	return found;
})()`
}

// A plot shows its samples even if there are only one or two, or if they have no neighbors, so that
// no line can be drawn through them.
func TestPlotsShowFewSamples(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	for n := 1; n <= 3; n++ {
		eval[chromedp.Void](p, fmt.Sprintf(fewSamples, n))
		p.show("volumes?q=vol-0")
		p.until(sized)
		eval[chromedp.Void](p, `document.querySelector(".body .row").click()`)
		p.until(`document.querySelectorAll(".panel .io .plot canvas").length === 3`)
		p.until(drawn(0) + ` > 8`)
		p.until(drawn(2) + ` > 8`)
		assert.Contains(t, eval[string](p, `document.querySelector(".panel .io .legend").innerText`), "Read 100/s")
		p.show("overview")
	}
}
