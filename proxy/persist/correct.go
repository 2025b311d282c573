package persist

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// correct changes what SPDK saves but cannot load, observed on v24.01 and v26.05: two orders of
// calls, and the options of histograms. All other calls stay as they are, in SPDK's order.
//
// SPDK saves a RAID without superblock after its base bdevs. When these are created, SPDK examines
// them, finds the lvstore of the RAID on one of them, and claims that bdev. Then the RAID cannot be
// created, and spdk_tgt exits, or continues with half of a mirror if it was told to ignore errors.
// If the RAID comes first, it claims its base bdevs when they appear.
//
// SPDK saves limits of bdevs before it waits for the examination of bdevs. Limits of volumes are
// refused until their lvstore is loaded, and spdk_tgt exits. The wait for examination is not
// enough. A RAID whose last base bdev has just appeared is not registered yet (v24.01 on a busy
// machine), so the volumes on it are waited for by name. The same is true for histograms.
//
// SPDK saves a histogram without its options. With the default ones, v26.05 does not count I/O
// channels that open later, and after a start all channels do; so the options that count all I/O
// are added.
func (s *Subsystem) correct(release rpcschema.Release) {
	if s.Name != "bdev" {
		return
	}
	var options, raids, others, limits []json.RawMessage
	waits := map[any]bool{}
	thenWait := func(e entry) {
		if name := e.Params["name"]; !waits[name] {
			limits = append(limits, waitFor(name, len(waits)))
			waits[name] = true
		}
	}
	for i, c := range s.Calls {
		e, _ := entryOf(c) // subsystem has checked it
		switch {
		case e.Method == "bdev_set_options" && i == 0, e.Method == "bdev_raid_set_options":
			options = append(options, c)
		case e.Method == "bdev_raid_create":
			raids = append(raids, c)
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
		s.Calls = slices.Concat(options, raids, others, limits)
	}
}

const enableHistogram = "bdev_enable_histogram"

// countingAll returns the call with the options with which SPDK counts all I/O, unless SPDK saved
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

// A bdev may take firstWait to appear before its limit is set or its histogram enabled. Each
// further one may take half as long, and at least leastWait: bdevs appear while others are waited
// for. So volumes that were deleted right before a crash do not delay the start by firstWait each.
const (
	firstWait = 30 * time.Second
	leastWait = time.Second
)

// waitFor returns a call that waits for a bdev after the waits for earlier ones.
func waitFor(bdev any, earlier int) json.RawMessage {
	name, _ := json.Marshal(bdev) // it was decoded
	return fmt.Appendf(nil, `{"method": "bdev_get_bdevs", "params": {"name": %s, "timeout": %d}}`, name, max(firstWait>>min(earlier, 30), leastWait).Milliseconds())
}
