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

	"github.com/spdkgate/spdkgate/proxy/directory"
)

// A Store stores key files.
type Store interface {
	// Place durably writes a key's file. It does not change an existing file.
	Place(name, secret string) (Outcome, error)
	// Remove deletes a key's file. A missing file is not an error.
	Remove(name string) error
	// List lists the files.
	List() (Listing, error)
}

// An Outcome is the result of Place.
type Outcome string

// These are the results of Place.
const (
	Placed  Outcome = "placed"  // the file was created
	There   Outcome = "there"   // a file with this secret already existed
	Differs Outcome = "differs" // a file with a different secret exists
)

// A Listing describes a directory and the key files in it.
type Listing struct {
	Dir   string `json:"dir"` // path of the directory as spdk_tgt sees it
	Files []File `json:"files"`
}

// A File describes a key's file.
type File struct {
	Name string    `json:"name"` // name of the key
	Made time.Time `json:"made"`
}

// Path returns the path of a key's file.
func (l Listing) Path(name string) string { return filepath.Join(l.Dir, name+suffix) }

// Has reports whether a key has a file.
func (l Listing) Has(name string) bool {
	for _, f := range l.Files {
		if f.Name == name {
			return true
		}
	}
	return false
}

const (
	suffix     = ".key"
	tempTag    = ".new-"
	tempMaxAge = time.Hour // an older temporary file was left behind by a crash
	longest    = 512       // maximum length of a secret, in bytes
)

// names matches names that are valid file names without escaping, so that no two keys share a file.
// The schema of spdkgate_key_add contains the same pattern.
var names = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@+=-]{0,99}$`)

func checkName(name string) error {
	if !names.MatchString(name) {
		return errors.New("a key's name must have 1 to 100 letters, digits and _.@+=- and begin with a letter, digit or _")
	}
	return nil
}

// A Folder is a Store in a directory that belongs to this process's user. This process must run as
// spdk_tgt's user, because spdk_tgt accepts only files of its own user.
type Folder struct {
	dir string
	// fail is called before each step. Tests make it return errors.
	fail func(step string) error
}

// OpenFolder opens a directory, or creates it if it does not exist. The directory must belong to
// this process's user, and must not be accessible to other users.
func OpenFolder(dir string) (*Folder, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("the directory for keys: %s is not an absolute path, as SPDK requires", dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create the directory for keys: %w", err)
	}
	if err := CheckFolder(dir); err != nil {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("read the owner of the directory for keys: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("the directory for keys: %s does not belong to user %d, whose files spdk_tgt accepts: chown it", dir, os.Geteuid())
	}
	return &Folder{dir: dir, fail: func(string) error { return nil }}, nil
}

// CheckFolder checks an existing directory, and returns the error that OpenFolder would return. It
// changes nothing. If the directory is missing, the error is fs.ErrNotExist. Root may check another
// user's directory.
func CheckFolder(dir string) error {
	if err := directory.Path(dir).CheckPrivate(); err != nil {
		return fmt.Errorf("the directory for keys: %w", err)
	}
	return nil
}

// Place implements Store. It writes a temporary file and links it to the final name, which fails if
// that name exists. Therefore, concurrent calls do not overwrite each other's files.
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

// compareFile compares a file's content with a secret in constant time. It returns There, Differs,
// or "" if there is no file.
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

// List implements Store. It also removes temporary files that a crash has left behind.
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
		case strings.HasPrefix(e.Name(), tempTag) && time.Since(info.ModTime()) > tempMaxAge:
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
	return errors.Join(f.fail("sync directory"), d.Sync(), d.Close())
}
