package tenancy

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// volumes caches the lvstore of each logical volume, by the volume's UUID in SPDK's spelling. A
// volume stays in its lvstore as long as it exists. A call that could delete a volume, or load
// another volume with the same UUID, empties the cache. Volumes that have not been used for some
// time are also removed. Only calls that read use the cache. The cache does not contain the owners
// of lvstores.
type volumes struct {
	mu        sync.RWMutex
	recent    map[string]string // volume → lvstore
	older     map[string]string
	turned    time.Time // when recent was last emptied
	forgotten time.Time
}

const (
	volumesKeep = 30 * time.Second // minimum time that an entry is kept; the maximum is three times as long
	maxVolumes  = 64 << 10         // in each of the two maps
)

// of returns the lvstore of a volume, or "" if it is unknown.
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

// learn adds a list of volumes, each with its lvstore. The list was read after since.
func (v *volumes) learn(list [][2]string, since time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !since.After(v.forgotten) {
		return
	}
	if age := now().Sub(v.turned); age >= volumesKeep || len(v.recent) > maxVolumes {
		v.older = v.recent
		if age >= 2*volumesKeep {
			v.older = nil
		}
		v.recent, v.turned = map[string]string{}, now()
	}
	for _, pair := range list {
		if volume, lvs := pair[0], pair[1]; v.recent[volume] != lvs {
			v.recent[strings.Clone(volume)] = strings.Clone(lvs) // copies, so that the response can be freed
		}
	}
}

// forget empties the cache, because a call may have moved a UUID to another volume.
func (v *volumes) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.recent, v.older, v.forgotten = map[string]string{}, nil, now()
}

// stable lists the methods that change bdevs but can never move a UUID to another volume.
var stable = []string{
	"bdev_lvol_create", "bdev_lvol_resize", "bdev_lvol_set_read_only", "bdev_set_qos_limit", "bdev_enable_histogram", "bdev_reset_iostat", "bdev_set_qd_sampling_period",
}

// Executed empties the cache of volumes if a call of the method may have moved a UUID to another
// volume. It must be called after each call by any user, whatever the outcome.
func (t *Tenancy) Executed(m *rpcschema.Method) {
	if m.Mutates && !slices.Contains(stable, m.Name) && (strings.HasPrefix(m.Name, "bdev_") || strings.HasPrefix(m.Name, "spdkgate_lvol_")) {
		t.volumes.forget()
	}
}
