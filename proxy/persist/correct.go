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

// correct changes calls that SPDK saves but cannot load, as observed on v24.01 and v26.05: the
// order of two kinds of calls, RAIDs with too few disks, and the options of histograms. All other
// calls stay unchanged, in SPDK's order.
//
// SPDK saves a RAID without a superblock after its base bdevs. When these are created, SPDK
// examines them, finds the RAID's lvstore on one of them, and claims that bdev. SPDK then cannot
// create the RAID. spdk_tgt exits or, if told to ignore errors, continues with half of a mirror. If
// the RAID comes first, it claims its base bdevs when they appear.
//
// Before v24.05, SPDK saves a RAID that has lost disks with the remaining ones only. If these are
// too few, spdk_tgt exits when it loads the file. See [raids.Padded].
//
// SPDK saves bdev limits before the call that waits for the examination of bdevs. SPDK refuses
// limits on volumes until their lvstore is loaded, so spdk_tgt exits. Waiting for the examination
// is not enough: a RAID whose last base bdev has just appeared may not be registered yet (v24.01 on
// a busy machine). Therefore, the saved file waits for the volumes by name. The same applies to
// histograms.
//
// SPDK saves a histogram without its options. With the default options, v26.05 does not count I/O
// on channels opened later, and after a start, all channels are opened later. Therefore, correct
// adds the options that count all I/O.
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
		e, _ := entryOf(c) // decoded successfully before, by subsystem
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

// countingAll adds the options with which SPDK counts all I/O to the call, unless SPDK saved
// options.
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

// A bdev may take firstWait to appear before its limit is set or its histogram is enabled. Bdevs
// appear during the waits for others, so the timeout of each further wait is half as long, but at
// least leastWait. So volumes deleted right before a crash do not each delay the start by
// firstWait.
const (
	firstWait = 30 * time.Second
	leastWait = time.Second
)

// waitMethod is the method of the calls that wait for a bdev. SPDK itself never saves it.
const waitMethod = "bdev_get_bdevs"

// waitFor returns a call that waits for a bdev. earlier is the number of waits before it.
func waitFor(bdev any, earlier int) json.RawMessage {
	name, _ := json.Marshal(bdev) // cannot fail for a decoded value
	return fmt.Appendf(nil, `{"method": %q, "params": {"name": %s, "timeout": %d}}`, waitMethod, name, max(firstWait>>min(earlier, 30), leastWait).Milliseconds())
}
