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
	"syscall"
	"time"
)

// Names in the folder. What begins with a word was set aside, and is never
// removed by itself.
const (
	Current = "current.json" // what spdk_tgt -c is given
	Held    = "held.json"    // of a target that lacks some of current; see Saver

	aside   = "%s-%s.json"
	stamp   = "20060102T150405.000Z" // names of former ones tell the time of their making
	tempTag = ".new-"                // left by a crash, if it is there
)

// Why a file is set aside.
const (
	asideReplaced = "replaced" // somebody gave up what it has and the target lacks
	asideDamaged  = "damaged"  // cannot be read
	asideHeld     = "held"     // has what no target knows any more
	asideBefore   = "before"   // the last one of another release
)

// A Folder holds the saved configurations of one target.
type Folder struct {
	path string
	keep int // former ones
	disk disk
}

// OpenFolder makes the folder if need be. It must be closed to others: what lies
// there holds secrets, and decides what spdk_tgt does.
func OpenFolder(path string, keep int) (*Folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the folder for the target's configuration: %w: make the one that it lies in", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("the folder for the target's configuration: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok:
		return nil, fmt.Errorf("%s is no folder: name one for the target's configuration", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s is open to others, and the target's configuration holds secrets: chmod 700 %s", path, path)
	case int(st.Uid) != os.Geteuid() && os.Geteuid() != 0:
		return nil, fmt.Errorf("%s belongs to another user: chown it to the user of spdk-proxy", path)
	}
	f := &Folder{path: path, keep: keep, disk: realDisk(path)}
	return f, f.clear()
}

// clear removes what a crash has left half written.
func (f *Folder) clear() error {
	unlock, err := f.disk.lock()
	if err != nil {
		return fmt.Errorf("the folder for the target's configuration: %w", err)
	}
	defer unlock()
	for _, name := range []string{Current, Held} {
		if err := f.disk.remove(tempTag + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the folder for the target's configuration: %w", err)
		}
	}
	return nil
}

// load reads a saved configuration. It is nil if there is none; damaged tells
// that there is one, but not such as spdk_tgt could load.
func (f *Folder) load(name string) (c *Configuration, damaged error, err error) {
	text, _, err := f.disk.read(name)
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

// replace makes c the current configuration. What it takes the place of is kept
// among the former ones, or set aside under a word. A crash at any step leaves the
// old or the new one, whole.
func (f *Folder) replace(c *Configuration, word string) error {
	keep := func() error { _, err := f.second(Current, word); return err }
	if err := f.put(Current, c, keep); err != nil {
		return err
	}
	return f.prune()
}

// renew makes c the current configuration, which says the same of another process.
func (f *Folder) renew(c *Configuration) error {
	return f.put(Current, c, func() error { return nil })
}

// hold writes what is not to become current.
func (f *Folder) hold(c *Configuration) error {
	return f.put(Held, c, func() error { return nil })
}

// put writes a file whole: under another name first, durable, then renamed. In
// between, before makes sure of what is there.
func (f *Folder) put(name string, c *Configuration, before func() error) error {
	text, err := c.text()
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp := tempTag + name
	if err := f.disk.remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.disk.write(temp, text); err != nil {
		_ = f.disk.remove(temp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := before(); err != nil {
		_ = f.disk.remove(temp)
		return err
	}
	if err := f.disk.rename(temp, name); err != nil {
		_ = f.disk.remove(temp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.disk.sync(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// second gives a file a second name: by the time of its making, after a word if
// there is one. The name is "" if there is no such file.
func (f *Folder) second(name, word string) (kept string, err error) {
	text, info, err := f.disk.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	for at := info.ModTime().UTC(); ; at = at.Add(time.Millisecond) {
		kept := at.Format(stamp) + ".json"
		if word != "" {
			kept = fmt.Sprintf(aside, word, at.Format(stamp))
		}
		err := f.disk.link(name, kept)
		if err == nil {
			return kept, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("keep %s as %s: %w", name, kept, err)
		}
		if there, _, err := f.disk.read(kept); err == nil && bytes.Equal(there, text) {
			return kept, nil // from before a crash
		}
	}
}

// setAside takes a file out of the way, under a word.
func (f *Folder) setAside(name, word string) error {
	if _, err := f.second(name, word); err != nil {
		return err
	}
	return f.drop(name)
}

func (f *Folder) drop(name string) error {
	if err := f.disk.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return f.disk.sync()
}

// former lists the former ones, newest first.
func (f *Folder) former() (names []string, err error) {
	list, err := f.disk.list()
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

// prune removes former ones beyond their number: those that lie closest to their
// neighbours for their age, so that many changes in a minute leave those of
// yesterday.
func (f *Folder) prune() error {
	names, err := f.former()
	if err != nil || len(names) <= f.keep {
		return err
	}
	for len(names) > f.keep {
		i := superfluous(names, time.Now())
		if err := f.disk.remove(names[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", names[i], err)
		}
		names = slices.Delete(names, i, i+1)
	}
	return f.disk.sync()
}

// superfluous finds the one of two or more to remove: neither the newest nor the
// oldest, where there are others.
func superfluous(names []string, now time.Time) int {
	at := make([]time.Time, len(names))
	for i, name := range names {
		at[i], _ = time.Parse(stamp, strings.TrimSuffix(name, ".json")) // as former has seen
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

// lastGood is the newest of the former ones that can be read; nil if there is none.
func (f *Folder) lastGood() (*Configuration, error) {
	names, err := f.former()
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

// Mentions says whether any of the saved configurations holds a text: the current
// one, a former one, or one that was set aside.
func (f *Folder) Mentions(text string) (bool, error) {
	quoted, err := json.Marshal(text)
	if err != nil {
		return false, err
	}
	list, err := f.disk.list()
	if err != nil {
		return false, fmt.Errorf("list the saved configurations: %w", err)
	}
	for _, info := range list {
		content, _, err := f.disk.read(info.Name())
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
