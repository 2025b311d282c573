package persist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

// These are the names of the files in a Folder. The name of a file that has been set aside begins
// with the reason. The proxy never removes such files.
const (
	Current = "current.json" // loaded by spdk_tgt -c
	Held    = "held.json"    // configuration of a target that lacks parts of Current; see Saver

	aside = "%s-%s.json"           // reason, time
	stamp = "20060102T150405.000Z" // previous versions are named after their file's time
)

// These are the reasons why a file is set aside.
const (
	asideReplaced = "replaced" // an administrator accepted the loss of calls in it
	asideDamaged  = "damaged"  // the file cannot be read
	asideHeld     = "held"     // neither Current nor the target contains all calls in the file
	asideBefore   = "before"   // the last file written by another SPDK release
)

// disk contains the operations of a directory.Path that a Folder uses. Tests replace it to make
// each operation fail, or to simulate a crash after it.
type disk interface {
	Write(name string, text []byte) error
	Read(name string) ([]byte, fs.FileInfo, error)
	SetTime(name string, at time.Time) error
	List() ([]fs.FileInfo, error)
	Link(old, name string) error
	Rename(old, name string) error
	Remove(name string) error
	Sync() error
	Lock() (unlock func(), err error)
}

// A Folder is the directory with the saved configurations of one target.
type Folder struct {
	path string
	keep int // maximum number of previous versions
	disk disk
}

// OpenFolder opens the directory, and creates it if necessary. The Folder keeps at most keep
// previous versions. Other users must not have access to the directory, because its files contain
// secrets and determine what spdk_tgt does.
func OpenFolder(path string, keep int) (*Folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create the directory of saved configurations: %w: create its parent directory", err)
	}
	if err := CheckFolder(path); err != nil {
		return nil, err
	}
	f := &Folder{path: path, keep: keep, disk: directory.Path(path)}
	return f, f.clear()
}

// CheckFolder checks an existing directory, and returns the error that OpenFolder would return. It
// changes nothing. If the directory is missing, the error is fs.ErrNotExist.
func CheckFolder(path string) error {
	if err := directory.Path(path).CheckPrivate(); err != nil {
		return fmt.Errorf("open the directory of saved configurations: %w", err)
	}
	return nil
}

// clear removes incomplete files that a crash has left behind.
func (f *Folder) clear() error {
	unlock, err := f.disk.Lock()
	if err != nil {
		return fmt.Errorf("lock the directory of saved configurations: %w", err)
	}
	defer unlock()
	for _, name := range []string{Current, Held, journalName} {
		if err := f.disk.Remove(directory.Temp + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clean up the directory of saved configurations: %w", err)
		}
	}
	return nil
}

// load reads a saved configuration. c is nil if there is no file. damaged is not nil if spdk_tgt
// could not load the file.
func (f *Folder) load(name string) (c *Configuration, damaged error, err error) {
	text, _, err := f.disk.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the saved configuration: %w", err)
	}
	c, err = parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", f.path, name, err), nil
	}
	return c, nil, nil
}

// replace makes c the current configuration. It keeps the old configuration as a previous version
// or, if reason is not "", sets it aside. After a crash at any step, the current file is either the
// complete old file or the complete new file.
func (f *Folder) replace(c *Configuration, reason string) error {
	keep := func() error { _, err := f.keepCopy(Current, reason); return err }
	if err := f.put(Current, c, keep); err != nil {
		return err
	}
	return f.prune()
}

// renew replaces the current configuration without keeping the old configuration, which contains
// the same calls.
func (f *Folder) renew(c *Configuration) error {
	return f.put(Current, c, func() error { return nil })
}

// hold writes c to the file Held, and leaves the current configuration unchanged.
func (f *Folder) hold(c *Configuration) error {
	return f.put(Held, c, func() error { return nil })
}

// put writes a file atomically. It durably writes the new file under a temporary name, calls before
// to keep the old file, and then renames the new file.
func (f *Folder) put(name string, c *Configuration, before func() error) error {
	text, err := c.text()
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.putText(name, text, time.Time{}, before)
}

// putText is like put, but also sets the file's modification time. A zero time stands for the
// current time.
func (f *Folder) putText(name string, text []byte, at time.Time, before func() error) error {
	temp := directory.Temp + name
	if err := f.disk.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.disk.Write(temp, text); err != nil {
		_ = f.disk.Remove(temp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if !at.IsZero() {
		if err := f.disk.SetTime(temp, at); err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", name, err), f.disk.Remove(temp))
		}
	}
	if err := before(); err != nil {
		_ = f.disk.Remove(temp)
		return err
	}
	if err := f.disk.Rename(temp, name); err != nil {
		_ = f.disk.Remove(temp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.disk.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// keepCopy gives a file a second name, which consists of the reason, if any, and the file's time.
// It returns the second name, or "" if the file does not exist.
func (f *Folder) keepCopy(name, reason string) (kept string, err error) {
	text, info, err := f.disk.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	for at := info.ModTime().UTC(); ; at = at.Add(time.Millisecond) {
		kept := at.Format(stamp) + ".json"
		if reason != "" {
			kept = fmt.Sprintf(aside, reason, at.Format(stamp))
		}
		err := f.disk.Link(name, kept)
		if err == nil {
			return kept, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("keep %s as %s: %w", name, kept, err)
		}
		if existing, _, err := f.disk.Read(kept); err == nil && bytes.Equal(existing, text) {
			return kept, nil // an earlier run made the copy and then crashed
		}
	}
}

// setAside renames a file. The new name consists of the reason and the file's time.
func (f *Folder) setAside(name, reason string) error {
	if _, err := f.keepCopy(name, reason); err != nil {
		return err
	}
	return f.drop(name)
}

func (f *Folder) drop(name string) error {
	if err := f.disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return f.disk.Sync()
}

// previous lists the names of the previous versions, newest first.
func (f *Folder) previous() (names []string, err error) {
	list, err := f.disk.List()
	if err != nil {
		return nil, fmt.Errorf("list the saved configurations: %w", err)
	}
	for _, info := range list {
		name, ok := strings.CutSuffix(info.Name(), ".json")
		if _, err := time.Parse(stamp, name); ok && err == nil {
			names = append(names, info.Name())
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// prune removes previous versions beyond f.keep. It removes the versions that are closest in time
// to their neighbors, relative to their age. Therefore, many changes within a minute do not
// displace yesterday's versions.
func (f *Folder) prune() error {
	names, err := f.previous()
	if err != nil || len(names) <= f.keep {
		return err
	}
	for len(names) > f.keep {
		i := superfluous(names, time.Now())
		if err := f.disk.Remove(names[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", names[i], err)
		}
		names = slices.Delete(names, i, i+1)
	}
	return f.disk.Sync()
}

// superfluous returns the index of the version to remove. names must have at least two elements. It
// selects the newest or the oldest version only if there are no others.
func superfluous(names []string, now time.Time) int {
	at := make([]time.Time, len(names))
	for i, name := range names {
		at[i], _ = time.Parse(stamp, strings.TrimSuffix(name, ".json")) // cannot fail: previous has checked the name
	}
	best, least := len(names)-1, math.Inf(1)
	for i := 1; i < len(at)-1; i++ {
		age := max(now.Sub(at[i]), time.Millisecond)
		if gap := float64(at[i-1].Sub(at[i+1])) / float64(age); gap < least {
			best, least = i, gap
		}
	}
	return best
}

// lastGood returns the newest readable previous version, or nil if there is none.
func (f *Folder) lastGood() (*Configuration, error) {
	names, err := f.previous()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if c, _, err := f.load(name); err != nil || c != nil {
			return c, err
		}
	}
	return nil, nil
}

// Mentions reports whether any saved configuration contains text, including previous versions and
// files that were set aside.
func (f *Folder) Mentions(text string) (bool, error) {
	quoted, err := json.Marshal(text)
	if err != nil {
		return false, err
	}
	list, err := f.disk.List()
	if err != nil {
		return false, fmt.Errorf("list the saved configurations: %w", err)
	}
	for _, info := range list {
		content, _, err := f.disk.Read(info.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read a saved configuration: %w", err)
		}
		if bytes.Contains(content, quoted) || bytes.Contains(content, []byte(text)) {
			return true, nil
		}
	}
	return false, nil
}
