package persist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// A volume can be a clone of a bdev outside its lvstore. After a restart, SPDK makes such a clone
// available when it examines that bdev. A target that examines only what is named would never do
// so.

// externalParents remembers the bdevs that volumes of one process of the target are external clones
// of. Only a list of all bdevs shows them, which is too long to be read for each save.
type externalParents struct {
	mu      sync.Mutex
	process string   // whose parents are known; "": none
	names   []string // of the parents, without those that are volumes or lie on them
}

// changesExternal are the methods that give a volume another external parent.
var changesExternal = []string{"bdev_lvol_clone_bdev", "bdev_lvol_set_parent_bdev"}

// note forgets what is known if a call may have changed it.
func (e *externalParents) note(method string) {
	if slices.Contains(changesExternal, method) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.process = ""
	}
}

// of returns the names of the parents.
func (e *externalParents) of(ctx context.Context, t Target) ([]string, error) {
	e.mu.Lock()
	known, names := e.process == t.Process, e.names
	e.process, e.names = t.Process, nil // note, from here on, makes the next call read the list again
	e.mu.Unlock()
	var err error
	if !known {
		names, err = listExternalParents(ctx, t.Ask)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names = names; err != nil {
		e.process = ""
	}
	return names, err
}

// A listedBdev is what a list says about a bdev's place.
type listedBdev struct {
	Name     string          `json:"name"`
	UUID     string          `json:"uuid"`
	Specific json.RawMessage `json:"driver_specific"`
}

func listExternalParents(ctx context.Context, ask Ask) (names []string, err error) {
	const method = "bdev_get_bdevs"
	text, err := ask(ctx, method, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	var all []listedBdev
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", method, withoutValues(err))
	}
	parents, bases := map[string]bool{}, map[string][]string{}
	for _, b := range all {
		var specific struct {
			Lvol *struct {
				External string `json:"external_snapshot_name"` // SPDK has the UUID here
			} `json:"lvol"`
		}
		if err := json.Unmarshal(b.Specific, &specific); err == nil && specific.Lvol != nil {
			parents[specific.Lvol.External] = true
			continue
		}
		var below any
		_ = json.Unmarshal(b.Specific, &below)
		bases[b.Name] = basesBelow(below)
	}
	for _, b := range all {
		if (parents[b.UUID] || parents[b.Name]) && !onVolume(b.Name, bases, maxDepth) {
			names = append(names, b.Name)
		}
	}
	return names, nil
}

// basesBelow returns the names of bdevs that the description of a bdev contains.
func basesBelow(v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		for member, value := range v {
			name, ok := value.(string)
			if ok && (slices.Contains(basesIn, member) || member == "name") {
				names = append(names, name)
			}
			names = append(names, basesBelow(value)...)
		}
	case []any:
		for _, item := range v {
			names = append(names, basesBelow(item)...)
		}
	}
	return names
}

// maxDepth bounds how many bdevs may lie on each other. A deeper bdev counts as lying on a volume.
const maxDepth = 8

// onVolume reports whether a bdev is a volume or lies on one, according to the bases of all bdevs
// that are no volumes.
func onVolume(name string, bases map[string][]string, depth int) bool {
	below, known := bases[name]
	return depth == 0 || !known && isVolume(name) || slices.ContainsFunc(below, func(base string) bool {
		return base != name && onVolume(base, bases, depth-1)
	})
}
