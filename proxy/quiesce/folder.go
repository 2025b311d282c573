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

	"github.com/spdkgate/spdkgate/proxy/directory"
)

// A Folder is the journal: a directory with a file for each operation that has, or may have, frozen
// a volume. The process that is working on the operation locks the file. When the process ends, the
// kernel releases the lock.
type Folder struct{ path string }

// These are parts of the names of files in the journal's directory.
const (
	suffix = ".json"
	// prefix of a file that is being written; if a crash has left such a file, nothing had been
	// frozen yet
	tempTag = ".new-"
	// prefix of an entry that another process has thawed; the proxy counts and removes such entries
	thawedTag  = "thawed-"
	damagedTag = "damaged-" // prefix of an unreadable entry
	nameFormat = "20060102T150405.000000000Z"
	lockPoll   = 5 * time.Millisecond
)

// OpenFolder opens the journal, and creates the directory if it is missing. Other users must not
// have access to the directory, because its entries determine what is sent to the target.
func OpenFolder(path string) (*Folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create the directory of the freeze journal: %w: create its parent directory", err)
	}
	return FindFolder(path)
}

// FindFolder is like OpenFolder, but does not create the directory. If the directory is missing,
// the error is fs.ErrNotExist.
func FindFolder(path string) (*Folder, error) {
	if err := CheckFolder(path); err != nil {
		return nil, err
	}
	return &Folder{path: path}, nil
}

// CheckFolder checks an existing directory, and returns the error that OpenFolder would return. If
// the directory is missing, the error is fs.ErrNotExist.
func CheckFolder(path string) error {
	if err := directory.Path(path).CheckPrivate(); err != nil {
		return fmt.Errorf("open the freeze journal: %w", err)
	}
	return nil
}

func (f *Folder) at(name string) string { return filepath.Join(f.path, name) }

// A record is a journal entry that this process has locked and is working on.
type record struct {
	folder *Folder
	name   string
	file   *os.File // keeps the entry locked while open
	entry  entry
}

// create durably writes and locks an entry. If another operation has frozen one of its subsystems,
// the error is a *BusyError.
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
			return nil, &BusyError{Why: "another operation has frozen this volume or another volume of its subsystem"}
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

// remove deletes the entry, because its paths are no longer frozen.
func (r *record) remove() error {
	defer r.release()
	if err := os.Remove(r.folder.at(r.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove an entry of the journal: %w", err)
	}
	return r.folder.sync()
}

// rename closes the entry, and keeps its file under a name with the prefix tag.
func (r *record) rename(tag string) error {
	defer r.release()
	if err := os.Rename(r.folder.at(r.name), r.folder.at(tag+r.name)); err != nil {
		return fmt.Errorf("rename an entry of the journal: %w", err)
	}
	return r.folder.sync()
}

// release unlocks an entry, so that another process can work on it.
func (r *record) release() { _ = r.file.Close() }

// entries reads all entries, including those of other processes. If an entry cannot be read, it
// returns an error. Recovery renames unreadable entries.
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
			return nil, fmt.Errorf("read the freeze journal: %s: %w", name, err)
		}
		list = append(list, e)
	}
	return list, nil
}

// names lists the entries, oldest first.
func (f *Folder) names() (names []string, err error) {
	list, err := os.ReadDir(f.path)
	if err != nil {
		return nil, fmt.Errorf("list the freeze journal: %w", err)
	}
	for _, d := range list {
		if _, err := time.Parse(nameFormat+suffix, d.Name()); err == nil && d.Type().IsRegular() {
			names = append(names, d.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// lockOrphan locks an entry if no running process is working on it. Otherwise, or if the entry no
// longer exists, it returns nil. It sets aside a damaged entry.
func (f *Folder) lockOrphan(name string) (*record, error) {
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
	if !f.isFile(name, file) { // removed after it was opened
		r.release()
		return nil, nil
	}
	if err := json.NewDecoder(file).Decode(&r.entry); err != nil {
		return nil, errors.Join(fmt.Errorf("an entry of the freeze journal cannot be read and was renamed to %s: look for inaccessible paths with nvmf_subsystem_get_listeners: %w",
			damagedTag+name, err), r.rename(damagedTag))
	}
	return r, nil
}

func (f *Folder) exists(name string) bool {
	_, err := os.Lstat(f.at(name))
	return err == nil
}

// isFile reports whether name in the directory still refers to the open file.
func (f *Folder) isFile(name string, file *os.File) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.at(name))
	return err == nil && os.SameFile(opened, named)
}

// cleanUp removes files left behind by earlier processes, and counts the entries thawed by other
// processes.
func (f *Folder) cleanUp() (thawed int, err error) {
	unlock, err := f.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	list, err := os.ReadDir(f.path)
	if err != nil {
		return 0, fmt.Errorf("list the freeze journal: %w", err)
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

// lock keeps other processes from creating entries until unlock is called. It waits for up to a
// second, because other processes hold the lock only while they write.
func (f *Folder) lock() (unlock func(), err error) {
	d, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("open the freeze journal: %w", err)
	}
	for began := time.Now(); ; time.Sleep(lockPoll) {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = d.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Since(began) > time.Second {
			_ = d.Close()
			return nil, &BusyError{Why: "another process has locked the freeze journal", Err: err}
		}
	}
}

// giveToOwner changes the owner of a file created by root to the directory's owner, so that a proxy
// that runs as this user can read the file.
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
