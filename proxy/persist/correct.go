package persist

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist/raids"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// correct repairs calls that SPDK saves but cannot load, as observed on v24.01 and v26.05. It
// changes the order of two kinds of calls, adds disks to RAIDs that have too few, and adds options
// to histograms. All other calls remain unchanged, in SPDK's order.
//
// SPDK saves a RAID without a superblock after its base bdevs. When spdk_tgt loads the file, it
// creates and examines the base bdevs, finds the RAID's lvstore on one of them, and claims that
// bdev. After that, SPDK cannot create the RAID. spdk_tgt then exits or, if it was started with the
// option to ignore errors, continues with half of a mirror. If the file creates the RAID first, the
// RAID claims its base bdevs when they appear.
//
// Before v24.05, if a RAID has lost disks, SPDK saves only the remaining disks. If too few remain,
// spdk_tgt exits when it loads the file. See [raids.Padded].
//
// SPDK saves bdev limits before the call that waits for the examination of bdevs. SPDK refuses
// limits on volumes until their lvstore is loaded, so spdk_tgt exits. It is not enough to wait
// until SPDK has examined all bdevs, because a RAID whose last base bdev has just appeared may not
// be registered yet (v24.01 on a busy machine). Therefore, the saved file waits for each volume by
// name. The same applies to histograms.
//
// SPDK saves a histogram without its options. With the default options, v26.05 does not count I/O
// on channels that are opened after the histogram was enabled, which is the case for every channel
// after a start. Therefore, correct adds the options that count all I/O.
func (s *Subsystem) correct(release rpcschema.Release) {
	if s.Name != "bdev" {
		return
	}
	var options, created, others, limits []json.RawMessage
	waits := map[any]bool{}
	thenWait := func(e entry) {
		if name := e.Params["name"]; !waits[name] {
			limits = append(limits, waitFor(name, len(waits)))
			waits[name] = true
		}
	}
	for i, c := range s.Calls {
		e, _ := entryOf(c) // cannot fail: subsystem has already decoded this call
		switch {
		case e.Method == "bdev_set_options" && i == 0, e.Method == "bdev_raid_set_options":
			options = append(options, c)
		case e.Method == "bdev_raid_create":
			created = append(created, raids.Padded(c))
		case e.Method == "bdev_set_qos_limit":
			thenWait(e)
			limits = append(limits, c)
		case e.Method == enableHistogram:
			thenWait(e)
			limits = append(limits, countingAll(e, c, release))
		default:
			others = append(others, c)
		}
	}
	if len(s.Calls) > 0 {
		s.Calls = slices.Concat(options, created, others, limits)
	}
}

const enableHistogram = "bdev_enable_histogram"

// countingAll adds the options with which SPDK counts all I/O, unless the call contains options.
func countingAll(e entry, call json.RawMessage, release rpcschema.Release) json.RawMessage {
	if !release.Has(rpcschema.BoundsHistograms) {
		return call
	}
	for _, option := range []string{"granularity", "min_nsec", "max_nsec"} {
		if _, saved := e.Params[option]; saved {
			return call
		}
	}
	params := maps.Clone(e.Params)
	params["min_nsec"], params["max_nsec"] = 0, uint64(math.MaxUint64)
	text, err := json.Marshal(entry{Method: e.Method, Params: params})
	if err != nil {
		return call
	}
	return text
}

// The saved file waits up to firstWait for a bdev to appear before it sets the bdev's limit or
// enables its histogram. Other bdevs appear during the same time, so each further wait has half the
// timeout of the previous wait, but at least leastWait. Otherwise, each volume deleted right before
// a crash would delay the start by firstWait.
const (
	firstWait = 30 * time.Second
	leastWait = time.Second
)

// waitMethod is the method of the calls that wait for a bdev. SPDK itself never saves calls of this
// method.
const waitMethod = "bdev_get_bdevs"

// waitFor returns a call that waits for a bdev. earlier is the number of waits before it.
func waitFor(bdev any, earlier int) json.RawMessage {
	name, _ := json.Marshal(bdev) // cannot fail for a decoded value
	return fmt.Appendf(nil, `{"method": %q, "params": {"name": %s, "timeout": %d}}`, waitMethod, name, max(firstWait>>min(earlier, 30), leastWait).Milliseconds())
}
