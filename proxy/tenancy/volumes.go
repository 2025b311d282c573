package tenancy

import (
	"strings"
	"sync"
	"time"
)

// volumes caches the lvstore of each logical volume, by the volume's UUID in SPDK's spelling. It
// never changes while the volume exists, and only an administrator could give the UUID to another
// bdev afterwards. Volumes that were not used for a while are forgotten. The cache does not know
// who owns an lvstore.
type volumes struct {
	mu     sync.RWMutex
	recent map[string]string // volume → lvstore
	older  map[string]string
	turned time.Time // when recent was last emptied
}

const (
	volumesKeep = 30 * time.Second // least time that an entry is kept; the most is three times as long
	maxVolumes  = 64 << 10         // in each of the two maps
)

// of returns the lvstore of a volume; "" if it is unknown.
func (v *volumes) of(volume string) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	switch age := now().Sub(v.turned); {
	case age >= 2*volumesKeep:
		return ""
	case age < volumesKeep:
		if lvs := v.recent[volume]; lvs != "" {
			return lvs
		}
		return v.older[volume]
	}
	return v.recent[volume]
}

// learn adds pairs of a volume and its lvstore.
func (v *volumes) learn(list [][2]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if age := now().Sub(v.turned); age >= volumesKeep || len(v.recent) > maxVolumes {
		v.older = v.recent
		if age >= 2*volumesKeep {
			v.older = nil
		}
		v.recent, v.turned = map[string]string{}, now()
	}
	for _, pair := range list {
		if volume, lvs := pair[0], pair[1]; v.recent[volume] != lvs {
			v.recent[strings.Clone(volume)] = strings.Clone(lvs) // copies, so that the whole answer can be freed
		}
	}
}
