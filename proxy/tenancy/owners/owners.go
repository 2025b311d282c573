package owners

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// A File records the owners of subsystems. If it cannot be written, this is logged as an error, and
// the owners are lost when the proxy restarts. A nil File records nothing. A File is safe for
// concurrent use.
type File struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	of      map[string]map[string]bool // NQNs by tenant
	changes int                        // number of changes made to the map above

	writing sync.Mutex
	written int // number of changes that the file contains; guarded by writing
}

// content is the JSON document in the file.
type content struct {
	Subsystems map[string][]string `json:"subsystems"` // NQNs by tenant
}

// Open reads the file at path. The file need not exist, but its directory must.
func Open(path string, log *slog.Logger) (*File, error) {
	f := &File{path: path, log: log, of: map[string]map[string]bool{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	var c content
	if err == nil {
		if err = json.Unmarshal(text, &c); err != nil {
			err = fmt.Errorf("%s: %w. Restore this file, which records the tenant that owns each subsystem. If you remove it instead, subsystems whose volumes were deleted no longer count in quotas, and their tenants can no longer delete them", path, err)
		}
	}
	if err != nil {
		return nil, err
	}
	for tenant, nqns := range c.Subsystems {
		f.of[tenant] = map[string]bool{}
		for _, nqn := range nqns {
			f.of[tenant][nqn] = true
		}
	}
	return f, nil
}

// Check checks the file, and returns the error that Open would return. It changes nothing.
func Check(path string) error {
	_, err := Open(path, slog.New(slog.DiscardHandler))
	return err
}

// Of returns the NQNs of a tenant's subsystems.
func (f *File) Of(tenant string) (nqns []string) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for nqn := range f.of[tenant] {
		nqns = append(nqns, nqn)
	}
	return nqns
}

// Add durably records that a tenant owns a subsystem.
func (f *File) Add(tenant, nqn string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	if f.of[tenant][nqn] {
		f.mu.Unlock()
		return
	}
	if f.of[tenant] == nil {
		f.of[tenant] = map[string]bool{}
	}
	f.of[tenant][nqn] = true
	f.changed()
}

// Retain removes the records of those of a tenant's subsystems that are not in existing.
func (f *File) Retain(tenant string, existing map[string]bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	before := len(f.of[tenant])
	for nqn := range f.of[tenant] {
		if !existing[nqn] {
			delete(f.of[tenant], nqn)
		}
	}
	if len(f.of[tenant]) == before {
		f.mu.Unlock()
		return
	}
	f.changed()
}

// changed unlocks mu, and returns once the file contains the change. Concurrent changes share a
// write.
func (f *File) changed() {
	f.changes++
	mine := f.changes
	f.mu.Unlock()
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.written >= mine {
		return
	}
	f.mu.Lock()
	latest, c := f.changes, content{map[string][]string{}}
	for tenant, nqns := range f.of {
		for nqn := range nqns {
			c.Subsystems[tenant] = append(c.Subsystems[tenant], nqn)
		}
		slices.Sort(c.Subsystems[tenant])
	}
	f.mu.Unlock()
	if err := f.write(c); err != nil {
		f.log.Error("cannot store which tenants own which subsystems; after a restart of the proxy, subsystems whose volumes were deleted do not count against quotas, and their tenants cannot delete them", "error", err)
		return
	}
	f.written = latest
}

// write replaces the file.
func (f *File) write(c content) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	// CreateTemp creates a file that only its owner can read
	made, err := os.CreateTemp(dir, "."+filepath.Base(f.path)+"-")
	if err != nil {
		return err
	}
	_, err = made.Write(text)
	if err = errors.Join(err, made.Sync(), made.Close()); err == nil {
		err = os.Rename(made.Name(), f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(made.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
