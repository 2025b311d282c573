package quiesce

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Folder is the journal: a file for each operation that has frozen something, or
// may have. The process that works on it holds a lock on the file, which the
// kernel releases when that process dies.
type Folder struct{ path string }

// Names in the folder.
const (
	suffix     = ".json"
	tempTag    = ".new-"    // being written; a crash leaves it behind, and nothing was frozen yet
	thawedTag  = "thawed-"  // by another process than the one that froze it; a proxy counts and removes it
	damagedTag = "damaged-" // cannot be read
	nameFormat = "20060102T150405.000000000Z"
	lockPoll   = 5 * time.Millisecond
)

// OpenFolder makes the folder if need be. It must be closed to others: what lies
// there decides what is sent to the target.
func OpenFolder(path string) (*Folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the folder for the journal of frozen volumes: %w: make the one that it lies in", err)
	}
	return FindFolder(path)
}

// FindFolder is OpenFolder of a folder that must be there; if it is not, the error
// is fs.ErrNotExist.
func FindFolder(path string) (*Folder, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("the folder for the journal of frozen volumes: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok:
		return nil, fmt.Errorf("%s is no folder: name one for the journal of frozen volumes", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s is open to others, and what lies there is sent to the target: chmod 700 %s", path, path)
	case int(st.Uid) != os.Geteuid() && os.Geteuid() != 0:
		return nil, fmt.Errorf("%s belongs to another user: chown it to the user of spdk-proxy", path)
	}
	return &Folder{path: path}, nil
}

func (f *Folder) at(name string) string { return filepath.Join(f.path, name) }

// A record is an entry of the journal that this process works on.
type record struct {
	folder *Folder
	name   string
	file   *os.File // holds the lock
	entry  entry
}

// create writes an entry, durable when it returns, and locks it. It is a
// *BusyError if another operation has frozen one of the same paths.
func (f *Folder) create(e entry) (*record, error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	others, err := f.entries()
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if other.overlaps(e) {
			return nil, &BusyError{Why: "this volume, or another one of its subsystem, is frozen already"}
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write the journal: %w", err)
	}
	at := e.Made.UTC()
	for f.exists(at.Format(nameFormat) + suffix) {
		at = at.Add(time.Nanosecond)
	}
	r := &record{folder: f, name: at.Format(nameFormat) + suffix, entry: e}
	if err := r.write(text); err != nil {
		return nil, fmt.Errorf("write the journal: %w", err)
	}
	return r, nil
}

func (r *record) write(text []byte) (err error) {
	temp := r.folder.at(tempTag + r.name)
	r.file, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
			r.release()
		}
	}()
	if err := syscall.Flock(int(r.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return &fs.PathError{Op: "lock", Path: temp, Err: err}
	}
	if _, err := r.file.Write(text); err != nil {
		return err
	}
	if err := r.folder.giveToOwner(r.file); err != nil {
		return err
	}
	if err := r.file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temp, r.folder.at(r.name)); err != nil {
		return err
	}
	return r.folder.sync()
}

// remove ends an entry: nothing of it is frozen any more.
func (r *record) remove() error {
	defer r.release()
	if err := os.Remove(r.folder.at(r.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an entry of the journal: %w", err)
	}
	return r.folder.sync()
}

// rename ends an entry, and leaves its file behind under a word.
func (r *record) rename(tag string) error {
	defer r.release()
	if err := os.Rename(r.folder.at(r.name), r.folder.at(tag+r.name)); err != nil {
		return fmt.Errorf("rename an entry of the journal: %w", err)
	}
	return r.folder.sync()
}

// release leaves an entry to whoever comes next.
func (r *record) release() { _ = r.file.Close() }

// entries reads all entries, whoever works on them. What cannot be read is left
// to recovery.
func (f *Folder) entries() (list []entry, err error) {
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(f.at(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var e entry
		if err == nil {
			err = json.Unmarshal(text, &e)
		}
		if err != nil {
			return nil, fmt.Errorf("read the journal of frozen volumes: %s: %w", name, err)
		}
		list = append(list, e)
	}
	return list, nil
}

// names lists the entries, oldest first.
func (f *Folder) names() (names []string, err error) {
	list, err := os.ReadDir(f.path)
	if err != nil {
		return nil, fmt.Errorf("list the journal of frozen volumes: %w", err)
	}
	for _, d := range list {
		if _, err := time.Parse(nameFormat+suffix, d.Name()); err == nil && d.Type().IsRegular() {
			names = append(names, d.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// orphan locks an entry that no living process works on; nil if one does, or if
// it is gone. A damaged one is set aside.
func (f *Folder) orphan(name string) (*record, error) {
	file, err := os.OpenFile(f.at(name), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open an entry of the journal: %w", err)
	}
	r := &record{folder: f, name: name, file: file}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		r.release()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock an entry of the journal: %w", err)
	}
	if !f.still(name, file) { // removed between opening and locking
		r.release()
		return nil, nil
	}
	if err := json.NewDecoder(file).Decode(&r.entry); err != nil {
		return nil, errors.Join(fmt.Errorf("an entry of the journal of frozen volumes cannot be read and is set aside as %s: look for paths that stayed inaccessible with nvmf_subsystem_get_listeners: %w",
			damagedTag+name, err), r.rename(damagedTag))
	}
	return r, nil
}

func (f *Folder) exists(name string) bool {
	_, err := os.Lstat(f.at(name))
	return err == nil
}

func (f *Folder) still(name string, file *os.File) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.at(name))
	return err == nil && os.SameFile(held, there)
}

// collect removes what earlier processes have left behind, and counts the entries
// that were thawed by another process than the one that froze them.
func (f *Folder) collect() (thawed int, err error) {
	unlock, err := f.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	list, err := os.ReadDir(f.path)
	if err != nil {
		return 0, fmt.Errorf("list the journal of frozen volumes: %w", err)
	}
	for _, d := range list {
		before, after := strings.HasPrefix(d.Name(), tempTag), strings.HasPrefix(d.Name(), thawedTag)
		if !before && !after {
			continue
		}
		if err := os.Remove(f.at(d.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return thawed, fmt.Errorf("remove an entry of the journal: %w", err)
		}
		if after {
			thawed++
		}
	}
	return thawed, nil
}

// lock keeps others from making entries until unlocked, which takes them a write.
func (f *Folder) lock() (unlock func(), err error) {
	d, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("open the journal of frozen volumes: %w", err)
	}
	for began := time.Now(); ; time.Sleep(lockPoll) {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = d.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Since(began) > time.Second {
			_ = d.Close()
			return nil, &BusyError{Why: "the journal of frozen volumes is locked by another process", Err: err}
		}
	}
}

// giveToOwner gives a file that root has made to whom the folder belongs, or a
// proxy of another user could not read it.
func (f *Folder) giveToOwner(file *os.File) error {
	var folder syscall.Stat_t
	if err := syscall.Stat(f.path, &folder); err != nil {
		return &fs.PathError{Op: "stat", Path: f.path, Err: err}
	}
	if int(folder.Uid) == os.Geteuid() {
		return nil
	}
	return file.Chown(int(folder.Uid), int(folder.Gid))
}

func (f *Folder) sync() error {
	d, err := os.Open(f.path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
