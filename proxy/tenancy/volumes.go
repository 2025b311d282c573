package tenancy

import (
	"strings"
	"sync"
	"time"
)

// volumes remembers which lvstore a logical volume lies in, by the volume's UUID
// in SPDK's own spelling. That never changes while there is the volume, and
// nobody but an administrator could give its UUID to another bdev afterwards;
// to what was not seen for a while it forgets. Whose the lvstore is, it does not know.
type volumes struct {
	mu     sync.RWMutex
	recent map[string]string // volume → lvstore
	older  map[string]string
	turned time.Time // when recent began
}

const (
	volumesKeep = 30 * time.Second // how long at least, and a third of how long at most
	volumesMost = 64 << 10         // in each of the two
)

// of is the lvstore of a volume, "" when it is not known.
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

// learn notes where volumes lie.
func (v *volumes) learn(list [][2]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if age := now().Sub(v.turned); age >= volumesKeep || len(v.recent) > volumesMost {
		v.older = v.recent
		if age >= 2*volumesKeep {
			v.older = nil
		}
		v.recent, v.turned = map[string]string{}, now()
	}
	for _, pair := range list {
		if volume, lvs := pair[0], pair[1]; v.recent[volume] != lvs {
			v.recent[strings.Clone(volume)] = strings.Clone(lvs) // keeps no listing alive
		}
	}
}
