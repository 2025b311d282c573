package browser

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Changes that other clients make on the target appear without a reload.
func TestChangesAppearWithoutReload(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.has("Live")
	p.show("volumes?q=by-others")
	p.has("No volume matches")
	_, err := p.testbed.target.call("bdev_lvol_create", object{"lvol_name": "by-others", "size_in_mib": 4, "lvs_name": "scratch"})
	require.NoError(t, err)
	p.until(`/^1 of /.test(document.querySelector(".shown").innerText)`)
	p.show("overview")
	p.until(`document.querySelector(".events")?.innerText.includes("scratch/by-others")`)
	_, err = p.testbed.target.call("bdev_lvol_delete", object{"name": "scratch/by-others"})
	require.NoError(t, err)
	p.until(`document.querySelectorAll(".events li").length >= 2`)
}

// A page closes its event streams when the user leaves it. Browsers keep the page for the Back
// button, and allow few connections. When the page is shown again, it opens the streams again.
func TestHiddenPageClosesItsStreams(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.has("Live")
	streams := func() (n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, address := range p.requests {
			if strings.HasSuffix(address, "/events") {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, streams())
	eval[chromedp.Void](p, `dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true })); dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })); null`)
	require.Eventually(t, func() bool { return streams() == 2 }, limit, 20*time.Millisecond, "the page must listen again")
}

// The console does not request events that the user's roles forbid, and shows this. Otherwise, the
// page would tell a tenant that nothing has happened, and each sign-in would be logged as a refused
// call.
func TestForbiddenEventsAreNotRequested(t *testing.T) {
	p := newPageAt(t, exportTestbed(t))
	p.signIn("team")
	p.until(`document.querySelector(".events")?.innerText.includes("Your roles do not permit reading events.")`)
	require.False(t, eval[bool](p, `document.body.innerText.includes("Live")`))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range p.requests {
		require.False(t, strings.HasSuffix(address, "/events"), address)
	}
}
