package class

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Limits limit a volume's I/O; all four limits apply at the same time. A nil limit leaves the
// current limit unchanged; 0 removes it.
type Limits struct {
	IOPS                                              *uint64 // reads and writes, a multiple of 1000
	MiBPerSecond, ReadMiBPerSecond, WriteMiBPerSecond *uint64
}

// maxLimit is small enough for SPDK to convert it to bytes.
const maxLimit = 1 << 40

// stepIOPS is the granularity of SPDK's I/O limits; SPDK would silently round up other values.
const stepIOPS = 1000

func setLimit(limit **uint64, v string, step uint64) bool {
	n, err := strconv.ParseUint(v, 10, 64)
	*limit = &n
	return err == nil && n%step == 0 && n <= maxLimit
}

// ParseMutable reads the parameters of a VolumeAttributesClass. Errors wrap [ErrParameter].
func ParseMutable(mutable map[string]string) (Limits, error) {
	var c Class
	for _, key := range slices.Sorted(maps.Keys(mutable)) {
		p, ok := find(key)
		if !ok || !p.Mutable {
			return c.Limits, fmt.Errorf("%w: mutable parameter %q is unknown: use %s", ErrParameter, key, names(true))
		}
		if !p.set(&c, mutable[key]) {
			return c.Limits, fmt.Errorf("%w: mutable parameter %s is %q: use %s", ErrParameter, key, mutable[key], p.Values)
		}
	}
	return c.Limits, nil
}

// With returns a copy of l in which every limit that is set in changed overrides the limit in l.
func (l Limits) With(changed Limits) Limits {
	for _, f := range []struct{ old, changed **uint64 }{
		{&l.IOPS, &changed.IOPS}, {&l.MiBPerSecond, &changed.MiBPerSecond},
		{&l.ReadMiBPerSecond, &changed.ReadMiBPerSecond}, {&l.WriteMiBPerSecond, &changed.WriteMiBPerSecond},
	} {
		if *f.changed != nil {
			*f.old = *f.changed
		}
	}
	return l
}
