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

	"github.com/spdkgate/spdkgate/proxy/persist/layers"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// journalName is the name of the file that lists logical volumes whose deletion has begun but is
// not yet saved.
const journalName = "removing"

// removing records, in memory and on disk, the deletions of logical volumes that the saved file
// does not yet reflect. A deleted volume stays deleted when the target restarts, but the saved file
// may still export it. Without the journal, this export would count as missing after a crash.
type removing struct {
	folder *Folder

	mu      sync.Mutex
	loaded  bool
	entries map[string]*deletion // by UUID
	version uint64               // version of entries

	writing sync.Mutex
	written uint64 // version on disk
}

// A deletion removes a logical volume, alone or with its lvstore.
type deletion struct {
	Names   []string `json:"names"` // all names of the volume
	Store   string   `json:"lvstore"`
	Disk    string   `json:"disk,omitempty"` // the bdev below the lvstore, if the lvstore is also deleted
	Process string   `json:"process"`

	ended bool // whether the call has ended
}

// Removing durably records the logical volumes that a call may delete. It must be called before the
// call, and end must be called after the call. ask must query the target to which the call is sent.
func (s *Saver) Removing(ctx context.Context, ask Ask, method string, params map[string]any, process string) (end func(), err error) {
	var deleted map[string]*deletion
	disk := "" // below a deleted lvstore
	switch method {
	case "bdev_lvol_delete":
		if name, is := params["name"].(string); is {
			deleted, err = lvolsToDelete(ctx, ask, map[string]any{"name": name}, spdkrpc.LvolStore{})
		}
	case "bdev_lvol_delete_lvstore":
		var stores []spdkrpc.LvolStore
		if err = askInto(ctx, ask, "bdev_lvol_get_lvstores", params, &stores); err == nil && len(stores) == 1 {
			disk = stores[0].BaseBdev
			deleted, err = lvolsToDelete(ctx, ask, nil, stores[0])
		}
	}
	end = func() {
		s.removing.ended(deleted)
		if disk != "" {
			s.changed(func(since *changes) { since.noteDeletedStore(disk) })
		}
	}
	if err != nil || len(deleted) == 0 {
		return end, nil // SPDK will refuse the call, or no export can depend on the volumes
	}
	for _, d := range deleted {
		d.Process = process
	}
	return end, s.removing.add(deleted)
}

// lvolsToDelete returns the logical volumes among the bdevs selected by params, by UUID. If the
// parameter with names an lvstore, it returns only the volumes in that lvstore.
func lvolsToDelete(ctx context.Context, ask Ask, params map[string]any, with spdkrpc.LvolStore) (map[string]*deletion, error) {
	var bdevs []spdkrpc.BdevInfo
	if err := askInto(ctx, ask, "bdev_get_bdevs", params, &bdevs); err != nil {
		return nil, err
	}
	found := map[string]*deletion{}
	for _, b := range bdevs {
		if b.DriverSpecific.Lvol == nil || b.DriverSpecific.Lvol.LvolStoreUUID == nil {
			continue
		}
		if store := *b.DriverSpecific.Lvol.LvolStoreUUID; with.UUID == "" || store == with.UUID {
			found[b.Name] = &deletion{Names: append([]string{b.Name}, b.Aliases...), Store: store, Disk: with.BaseBdev}
		}
	}
	return found, nil
}

func askInto(ctx context.Context, ask Ask, method string, params map[string]any, result any) error {
	text, err := ask(ctx, method, params)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// add durably records deletions. Concurrent calls share a write.
func (r *removing) add(deleted map[string]*deletion) error {
	r.mu.Lock()
	err := r.load()
	maps.Copy(r.entries, deleted)
	r.version++
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.write()
}

// write writes the entries, unless the file already contains them.
func (r *removing) write() error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	version := r.version
	text, err := json.Marshal(r.entries)
	r.mu.Unlock()
	if err != nil || r.written == version {
		return err
	}
	if err := r.folder.putText(journalName, text, time.Time{}, func() error { return nil }); err != nil {
		return err
	}
	r.written = version
	return nil
}

// load reads the previous proxy's journal. The caller must hold r.mu.
func (r *removing) load() error {
	if r.loaded {
		return nil
	}
	if r.entries == nil {
		r.entries = map[string]*deletion{}
	}
	text, _, err := r.folder.disk.Read(journalName)
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

func (r *removing) ended(deleted map[string]*deletion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range deleted {
		d.ended = true
	}
}

// namesOf returns all names of those volumes in names whose deletion has begun.
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

// settle determines which deletions were executed by a target process that is no longer running.
// settled lists the UUIDs of the volumes whose entries can be dropped once the configuration is
// saved. The other entries remain, because their lvstores may be only temporarily missing.
func settle(ctx context.Context, t Target, known map[string]deletion) (removals []removal, settled []string) {
	for _, uuid := range slices.Sorted(maps.Keys(known)) {
		d := known[uuid]
		if d.Process != t.Process {
			_, err := t.Ask(ctx, "bdev_get_bdevs", map[string]any{"name": uuid})
			if err == nil { // the deletion was not executed
				settled = append(settled, uuid)
			}
			if !errors.Is(err, spdkrpc.NoSuchDevice) {
				continue
			}
			if !storeIsKnown(ctx, t.Ask, d) {
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

// storeIsKnown reports whether the lvstore of a volume that the target lacks is loaded or has been
// deleted. The lvstore has been deleted if the target itself has examined the disk without finding
// it. storeIsKnown does not cause an examination, because hosts may since have written an lvstore
// to the disk.
func storeIsKnown(ctx context.Context, ask Ask, d deletion) bool {
	loaded := func() error {
		_, err := ask(ctx, "bdev_lvol_get_lvstores", map[string]any{"uuid": d.Store})
		return err
	}
	err := loaded()
	if d.Disk == "" || layers.NamesVolume(d.Disk) || !errors.Is(err, spdkrpc.NoSuchDevice) {
		return err == nil
	}
	if _, err := ask(ctx, "bdev_get_bdevs", map[string]any{"name": d.Disk}); err != nil || !examines(ctx, ask, d.Disk) {
		return false
	}
	if _, err := ask(ctx, "bdev_wait_for_examine", nil); err != nil {
		return false
	}
	err = loaded()
	return err == nil || errors.Is(err, spdkrpc.NoSuchDevice)
}

// examines reports whether the target examines a disk by itself, because it examines all bdevs or
// this one by name.
func examines(ctx context.Context, ask Ask, disk string) bool {
	var calls []entry
	if askInto(ctx, ask, "framework_get_config", map[string]any{"name": "bdev"}, &calls) != nil {
		return false
	}
	return slices.ContainsFunc(calls, func(e entry) bool {
		return e.Method == setBdevOptions && e.Params[autoExamine] == true || e.Method == examineBdev && e.Params["name"] == disk
	})
}

// forget durably removes entries. A later proxy would otherwise treat these deletions as new.
func (r *removing) forget(uuids []string) error {
	if len(uuids) == 0 {
		return nil
	}
	r.mu.Lock()
	for _, uuid := range uuids {
		delete(r.entries, uuid)
	}
	r.version++
	r.mu.Unlock()
	return r.write()
}
