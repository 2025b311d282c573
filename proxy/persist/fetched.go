package persist

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"time"
)

// The following functions are for `spdk-proxy saved fetch`, which copies another host's saved
// configurations.

// MaxText is the maximum size of a saved configuration sent to another host, in bytes.
const MaxText = 16 << 20

// ErrTooLarge means that a file is larger than MaxText.
var ErrTooLarge = errors.New("the file is larger than 16 MiB: copy it by other means")

// fetchable matches all file names that a Folder can contain.
var fetchable = regexp.MustCompile(`^(current|held|((replaced|damaged|held|before)-)?\d{8}T\d{6}\.\d{3}Z)\.json$`)

// A Text contains a file's name, time and content.
type Text struct {
	Name    string
	SavedAt time.Time // in whole milliseconds
	Bytes   []byte
}

// Sum returns the SHA-256 of the content, in hexadecimal.
func (t Text) Sum() string {
	sum := sha256.Sum256(t.Bytes)
	return hex.EncodeToString(sum[:])
}

// Text reads a file listed by List. If the file does not exist, the error is fs.ErrNotExist.
func (f *Folder) Text(name string) (Text, error) {
	if !fetchable.MatchString(name) {
		return Text{}, fmt.Errorf("%q is not the name of a saved configuration: %w", name, fs.ErrNotExist)
	}
	text, info, err := f.disk.Read(name)
	if err != nil {
		return Text{}, fmt.Errorf("read the saved configuration: %w", err)
	}
	if len(text) > MaxText {
		return Text{}, fmt.Errorf("read the saved configuration %s: %w", name, ErrTooLarge)
	}
	return Text{name, info.ModTime().UTC().Truncate(time.Millisecond), text}, nil
}

// Store writes a file copied from another host's directory, and sets the file's original time. It
// returns true if f lacked the file or had another version. Before replacing the current file with
// a different version, Store keeps the local file as a previous version. Store replaces only the
// current and the held file.
func (f *Folder) Store(t Text) (stored bool, err error) {
	if !fetchable.MatchString(t.Name) {
		return false, fmt.Errorf("%q is not the name of a saved configuration: check that the other host runs spdk-proxy", t.Name)
	}
	unlock, err := f.disk.Lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	there, _, err := f.disk.Read(t.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, fmt.Errorf("read the copy %s: %w", t.Name, err)
	case bytes.Equal(there, t.Bytes):
		return false, nil
	case t.Name != Current && t.Name != Held:
		return false, fmt.Errorf("the copy %s differs from the file on the other host: copy each host into a directory of its own", t.Name)
	}
	keep := func() error { return nil }
	if t.Name == Current {
		keep = func() error { _, err := f.keepCopy(Current, ""); return err }
	}
	if err := f.putText(t.Name, t.Bytes, t.SavedAt, keep); err != nil {
		return false, err
	}
	return true, f.prune()
}
