package persist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// journalName is the file that lists logical volumes which calls may just have deleted.
const journalName = "removing"

// removing remembers deletions of logical volumes that are not saved yet, on disk too. A volume
// stays deleted when the target is restarted, whereas the saved file may still export it. Without
// the journal, such an export would count as missing after a crash.
type removing struct {
	folder *Folder

	mu      sync.Mutex
	loaded  bool
	entries map[string]*deletion // by UUID
	version uint64               // of entries

	writing sync.Mutex
	written uint64 // version on disk
}

// A deletion is the deletion of one logical volume.
type deletion struct {
	Names   []string `json:"names"` // all that the volume has
	Store   string   `json:"lvstore"`
	Process string   `json:"process"`

	ended bool // the call has ended
}

// Removing must be called before a call that may delete a logical volume, and end after it. It
// notes the deletion durably. ask asks the target that the call is sent to.
func (s *Saver) Removing(ctx context.Context, ask Ask, method string, params map[string]any, process string) (end func(), err error) {
	name, is := params["name"].(string)
	if method != "bdev_lvol_delete" || !is {
		return func() {}, nil
	}
	text, err := ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
	var found []spdkrpc.BdevInfo
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil || len(found) != 1 || found[0].DriverSpecific.Lvol == nil || found[0].DriverSpecific.Lvol.LvolStoreUUID == nil {
		return func() {}, nil // SPDK will refuse the call
	}
	b := found[0]
	d := &deletion{Names: append([]string{b.Name}, b.Aliases...), Store: *b.DriverSpecific.Lvol.LvolStoreUUID, Process: process}
	return func() { s.removing.ended(b.Name) }, s.removing.add(b.Name, d)
}

// add notes a deletion, and returns when it is durable. Concurrent calls share one write.
func (r *removing) add(uuid string, d *deletion) error {
	r.mu.Lock()
	err := r.load()
	r.entries[uuid] = d
	r.version++
	version := r.version
	r.mu.Unlock()
	if err != nil {
		return err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.written >= version {
		return nil
	}
	r.mu.Lock()
	version = r.version
	text, err := json.Marshal(r.entries)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	if err := r.folder.putText(journalName, text, time.Time{}, func() error { return nil }); err != nil {
		return err
	}
	r.written = version
	return nil
}

// load reads the journal of the previous proxy. r.mu is held.
func (r *removing) load() error {
	if r.loaded {
		return nil
	}
	if r.entries == nil {
		r.entries = map[string]*deletion{}
	}
	text, _, err := r.folder.disk.read(journalName)
	if errors.Is(err, fs.ErrNotExist) {
		r.loaded = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the journal of deletions: %w", err)
	}
	var earlier map[string]*deletion
	if err := json.Unmarshal(text, &earlier); err == nil {
		for uuid, d := range earlier {
			if _, known := r.entries[uuid]; !known && d != nil {
				d.ended = true
				r.entries[uuid] = d
			}
		}
	}
	r.loaded = true
	return nil
}

func (r *removing) ended(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.entries[uuid]; d != nil {
		d.ended = true
	}
}

// namesOf returns the other names of volumes that are being deleted.
func (r *removing) namesOf(names []rpcschema.Name) (others []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.entries {
		if slices.ContainsFunc(names, func(n rpcschema.Name) bool { return n.Kind == "bdev" && slices.Contains(d.Names, n.Value) }) {
			others = append(others, d.Names...)
		}
	}
	return others
}

// known returns the deletions that have begun.
func (r *removing) known() (map[string]deletion, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(); err != nil {
		return nil, err
	}
	list := map[string]deletion{}
	for uuid, d := range r.entries {
		list[uuid] = *d
	}
	return list, nil
}

// settle finds out which deletions were executed, if the process of the target to which they were
// sent is gone. settled are the UUIDs of those of which nothing is left to do once the
// configuration is saved. Others are decided later: their lvstore may be missing now.
func settle(ctx context.Context, t Target, known map[string]deletion) (removals []removal, settled []string) {
	for _, uuid := range slices.Sorted(maps.Keys(known)) {
		d := known[uuid]
		if d.Process != t.Process {
			_, err := t.Ask(ctx, "bdev_get_bdevs", map[string]any{"name": uuid})
			if err == nil { // it was not executed
				settled = append(settled, uuid)
			}
			if !errors.Is(err, spdkrpc.NoSuchDevice) {
				continue
			}
			if _, err := t.Ask(ctx, "bdev_lvol_get_lvstores", map[string]any{"uuid": d.Store}); err != nil {
				continue
			}
		}
		removals = append(removals, removal{others: d.Names})
		if d.ended || d.Process != t.Process {
			settled = append(settled, uuid)
		}
	}
	return removals, settled
}

func (r *removing) forget(uuids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uuid := range uuids {
		delete(r.entries, uuid)
	}
}
