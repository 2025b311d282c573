package persist

import (
	"encoding/json"
	"slices"
)

// mend puts right what SPDK saves but does not load, seen on v24.01 and v26.05.
// Calls stay in SPDK's order but for these two:
//
// A RAID without superblock is told after the bdevs that it is made of. When they
// are created their data is looked at, and an lvstore on the RAID is found on one
// of them, and taken: the RAID cannot be made, spdk_tgt ends, or, told to ignore
// that, goes on with half of a mirror. Told before its bdevs, it takes them when
// they come.
//
// Limits on bdevs are told before the examination of bdevs is waited for. Those
// on volumes are refused while their lvstore is not found, and spdk_tgt ends.
func (s *Subsystem) mend() {
	if s.Name != "bdev" {
		return
	}
	var options, raids, others, limits []json.RawMessage
	for i, c := range s.Calls {
		e, _ := entryOf(c) // as subsystem has seen
		switch {
		case e.Method == "bdev_set_options" && i == 0, e.Method == "bdev_raid_set_options":
			options = append(options, c)
		case e.Method == "bdev_raid_create":
			raids = append(raids, c)
		case e.Method == "bdev_set_qos_limit":
			limits = append(limits, c)
		default:
			others = append(others, c)
		}
	}
	if len(s.Calls) > 0 {
		s.Calls = slices.Concat(options, raids, others, limits)
	}
}
