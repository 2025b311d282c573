package browser

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What others change on the target appears without a reload.
func TestChangesAppearByThemselves(t *testing.T) {
	p := newPage(t)
	p.signIn("admin")
	p.has("Live")
	p.show("volumes?q=by-others")
	p.has("No volume matches")
	_, err := p.world.target.call("bdev_lvol_create", object{"lvol_name": "by-others", "size_in_mib": 4, "lvs_name": "scratch"})
	require.NoError(t, err)
	p.until(`/^1 of /.test(document.querySelector(".shown").innerText)`)
	p.show("overview")
	p.until(`document.querySelector(".events")?.innerText.includes("scratch/by-others")`)
	_, err = p.world.target.call("bdev_lvol_delete", object{"name": "scratch/by-others"})
	require.NoError(t, err)
	p.until(`document.querySelectorAll(".events li").length >= 2`)
}
