package spdktest

import (
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The layout is a directory tree that shows which volumes are exported to which hosts. A connector
// on the same host uses it instead of NVMe-oF or iSCSI:
//
//	exports/NQN/hosts                one admitted host NQN per line, or * for any
//	exports/NQN/namespaces/UUID      link to the volume's file
//
// NQN is escaped as a path segment of a URL (url.PathEscape). The directory exists for as long as
// the subsystem has a listener. iSCSI targets have the same layout, with the IQN, initiator names
// (* for any), and the UUIDs of their bdevs.

// An exported describes a subsystem or iSCSI target that accepts connections.
type exported struct {
	name    string            // NQN or IQN
	hosts   []string          // admitted names, or *
	volumes map[string]string // UUID of a volume → its file
}

func (d *dataDir) exportDir(name string) string {
	return filepath.Join(d.root, "exports", url.PathEscape(name))
}

// resetExports removes all exports. A target calls it when it starts.
func (d *dataDir) resetExports() error {
	return os.RemoveAll(filepath.Join(d.root, "exports"))
}

// write updates an export's directory. It removes hosts before it removes volumes, and adds hosts
// after it adds volumes.
func (d *dataDir) write(x exported) error {
	dir := d.exportDir(x.name)
	namespaces := filepath.Join(dir, "namespaces")
	if err := os.MkdirAll(namespaces, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(namespaces)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		file, still := x.volumes[entry.Name()]
		link := filepath.Join(namespaces, entry.Name())
		if now, err := os.Readlink(link); still && err == nil && now == file {
			delete(x.volumes, entry.Name())
			continue
		}
		if err := os.Remove(link); err != nil {
			return err
		}
	}
	for id, file := range x.volumes {
		if err := os.Symlink(file, filepath.Join(namespaces, id)); err != nil {
			return err
		}
	}
	hosts := ""
	if len(x.hosts) > 0 {
		hosts = strings.Join(x.hosts, "\n") + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.new"), []byte(hosts), 0o644); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, "hosts.new"), filepath.Join(dir, "hosts"))
}

// export writes the layout of a subsystem.
func (e *engine) export(s *subsystem) error {
	if e.dir == nil || s.discovery {
		return nil
	}
	if len(s.listeners) == 0 {
		return e.unexport(s.nqn)
	}
	x := exported{name: s.nqn, volumes: map[string]string{}}
	for _, h := range s.hosts {
		x.hosts = append(x.hosts, h.nqn)
	}
	if s.anyHost {
		x.hosts = []string{"*"}
	}
	for _, nsid := range slices.Sorted(maps.Keys(s.namespaces)) {
		if ns := s.namespaces[nsid]; e.dataOf(ns.bdev) != "" && !ns.hidden {
			x.volumes[ns.uuid] = e.dataOf(ns.bdev)
		}
	}
	return e.dir.write(x)
}

func (e *engine) unexport(name string) error {
	if e.dir == nil {
		return nil
	}
	return os.RemoveAll(e.dir.exportDir(name))
}

// exportLater marks an export because one of its bdevs is being removed. The call that removes the
// bdev rewrites the export's directory before it responds.
func (e *engine) exportLater(s *subsystem) {
	if e.dir != nil {
		e.stale = append(e.stale, func() error { return e.export(s) })
	}
}

// refreshExports rewrites the directories of the exports that exportLater has marked.
func (e *engine) refreshExports() error {
	var errs []error
	for _, refresh := range e.stale {
		errs = append(errs, refresh())
	}
	e.stale = nil
	return errors.Join(errs...)
}
