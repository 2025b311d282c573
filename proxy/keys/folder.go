package keys

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// A Store holds the files of keys.
type Store interface {
	// Place writes the file of a key and syncs it to disk. It does not change an existing file.
	Place(name, secret string) (Outcome, error)
	// Remove deletes the file of a key. It is no error if there is none.
	Remove(name string) error
	// List lists the files.
	List() (Listing, error)
}

// An Outcome is what Place found.
type Outcome string

// What Place may find.
const (
	Placed  Outcome = "placed"  // there was none
	There   Outcome = "there"   // it was there, with this secret
	Differs Outcome = "differs" // it is there, with another one
)

// A Listing is a folder and what it holds.
type Listing struct {
	Dir   string `json:"dir"` // as spdk_tgt sees it
	Files []File `json:"files"`
}

// A File is that of one key.
type File struct {
	Name string    `json:"name"` // of the key
	Made time.Time `json:"made"`
}

// Path is where the file of a key is.
func (l Listing) Path(name string) string { return filepath.Join(l.Dir, name+suffix) }

// Has says whether there is a file for a key.
func (l Listing) Has(name string) bool {
	for _, f := range l.Files {
		if f.Name == name {
			return true
		}
	}
	return false
}

const (
	suffix    = ".key"
	tempTag   = ".new-"
	leftovers = time.Hour // a temporary file as old as that is none's
	longest   = 512       // bytes of a secret
)

// names are those that files can bear as they are, so that two keys never share
// one. The schema says the same of spdkgate_key_add.
var names = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+=-]{0,99}$`)

func checkName(name string) error {
	if !names.MatchString(name) {
		return errors.New("a key's name has 1 to 100 letters, digits and _.@+=- and begins with a letter, digit or _")
	}
	return nil
}

// A Folder is a Store of this process's own. spdk_tgt takes only files of its own
// user, so this must be the same.
type Folder struct {
	dir string
	// fail stands before each step, so that tests can have it fail.
	fail func(step string) error
}

// OpenFolder makes the folder if need be. It must be ours and closed to others.
func OpenFolder(dir string) (*Folder, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("the directory for keys: %s is not an absolute path, which SPDK requires", dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the folder for keys: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("the folder for keys: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("the directory for keys: %s must be a directory of user %d without access for others (chmod 700)", dir, os.Geteuid())
	}
	return &Folder{dir: dir, fail: func(string) error { return nil }}, nil
}

// Place implements Store. The file comes whole, by a link that takes no other's
// place, so that two who place at once do not overwrite each other.
func (f *Folder) Place(name, secret string) (Outcome, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	if len(secret) > longest {
		return "", errors.New("the secret is too long")
	}
	path := Listing{Dir: f.dir}.Path(name)
	if outcome, err := compareFile(path, secret); outcome != "" || err != nil {
		return outcome, err
	}
	temp := filepath.Join(f.dir, tempTag+rand.Text())
	defer func() { _ = os.Remove(temp) }()
	if err := f.write(temp, secret); err != nil {
		return "", fmt.Errorf("write the key's file: %w", err)
	}
	if err := f.fail("link"); err != nil {
		return "", fmt.Errorf("write the key's file: %w", err)
	}
	err := os.Link(temp, path)
	if errors.Is(err, fs.ErrExist) {
		return compareFile(path, secret)
	}
	if err == nil {
		err = f.sync()
	}
	if err != nil {
		return "", fmt.Errorf("write the key's file: %w", err)
	}
	return Placed, nil
}

// compareFile tells whether a file has this secret, in a time that does not
// depend on where they differ; "" if there is none.
func compareFile(path, secret string) (Outcome, error) {
	there, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the key's file: %w", err)
	}
	if subtle.ConstantTimeCompare(there, []byte(secret)) == 1 {
		return There, nil
	}
	return Differs, nil
}

func (f *Folder) write(path, secret string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = f.fail("write")
	if err == nil {
		_, err = file.WriteString(secret)
	}
	return errors.Join(err, f.fail("sync"), file.Sync(), file.Close())
}

// Remove implements Store.
func (f *Folder) Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := f.fail("remove")
	if err == nil {
		err = os.Remove(Listing{Dir: f.dir}.Path(name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = f.sync()
	}
	if err != nil {
		return fmt.Errorf("remove the key's file: %w", err)
	}
	return nil
}

// List implements Store, and clears away what a crash has left half written.
func (f *Folder) List() (Listing, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return Listing{}, fmt.Errorf("list the files of keys: %w", err)
	}
	l := Listing{Dir: f.dir, Files: []File{}}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		name, ok := strings.CutSuffix(e.Name(), suffix)
		switch {
		case ok && checkName(name) == nil:
			l.Files = append(l.Files, File{Name: name, Made: info.ModTime()})
		case strings.HasPrefix(e.Name(), tempTag) && time.Since(info.ModTime()) > leftovers:
			_ = os.Remove(filepath.Join(f.dir, e.Name()))
		}
	}
	return l, nil
}

func (f *Folder) sync() error {
	d, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(f.fail("sync folder"), d.Sync(), d.Close())
}
