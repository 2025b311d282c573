package spdktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MarkerFile identifies the data directory of a simulated target. Connectors check for this file,
// so that they never touch the volumes of a real target.
const MarkerFile = "simulated-spdk-target"

// A dataDir stores lvstores and the data of their volumes:
//
//	simulated-spdk-target              MarkerFile
//	lvstores/UUID/lvstore.json         storeRecord
//	lvstores/UUID/UUID.json            lvolRecord
//	lvstores/UUID/UUID.img             the volume, sparse
//	exports/…                          see layout.go
type dataDir struct {
	root string
	lock *os.File
}

func openDataDir(root string) (*dataDir, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{root, filepath.Join(root, "lvstores")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	lock, err := os.OpenFile(filepath.Join(root, MarkerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s belongs to another target: use a different one: %w", root, err), lock.Close())
	}
	return &dataDir{root: root, lock: lock}, nil
}

func (d *dataDir) close() error { return d.lock.Close() }

func (d *dataDir) storeDir(s *storeRecord) string { return filepath.Join(d.root, "lvstores", s.UUID) }

// dataOf returns the file that contains a volume's bytes.
func (d *dataDir) dataOf(s *storeRecord, lvolUUID string) string {
	return filepath.Join(d.storeDir(s), lvolUUID+".img")
}

// load reads all lvstores. It removes lvstores whose bdevs were only in memory.
func (d *dataDir) load(m *media) error {
	stores, err := filepath.Glob(filepath.Join(d.root, "lvstores", "*", "lvstore.json"))
	if err != nil {
		return err
	}
	for _, path := range stores {
		s := &storeRecord{lvols: map[string]*lvolRecord{}}
		if err := readJSON(path, s); err != nil {
			return err
		}
		if s.Base == "" {
			if err := d.removeStore(s); err != nil {
				return err
			}
			continue
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, entry := range entries {
			name, ok := strings.CutSuffix(entry.Name(), ".json")
			if !ok || name == "lvstore" {
				continue
			}
			l := &lvolRecord{}
			if err := readJSON(filepath.Join(filepath.Dir(path), entry.Name()), l); err != nil {
				return err
			}
			s.lvols[l.UUID] = l
			s.nextOrder = max(s.nextOrder, l.Order+1)
		}
		m.put(s)
	}
	return nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (d *dataDir) saveStore(s *storeRecord) error {
	if d == nil {
		return nil
	}
	if err := os.MkdirAll(d.storeDir(s), 0o700); err != nil {
		return err
	}
	return writeJSON(filepath.Join(d.storeDir(s), "lvstore.json"), s)
}

func (d *dataDir) removeStore(s *storeRecord) error {
	if d == nil {
		return nil
	}
	return os.RemoveAll(d.storeDir(s))
}

func (d *dataDir) saveLvol(s *storeRecord, l *lvolRecord) error {
	if d == nil {
		return nil
	}
	return writeJSON(filepath.Join(d.storeDir(s), l.UUID+".json"), l)
}

// removeLvol removes a volume. A loop device that has opened the volume's file can still use it.
func (d *dataDir) removeLvol(s *storeRecord, l *lvolRecord) error {
	if d == nil {
		return nil
	}
	return errors.Join(
		ignoreMissing(os.Remove(filepath.Join(d.storeDir(s), l.UUID+".json"))),
		ignoreMissing(os.Remove(d.dataOf(s, l.UUID))))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
