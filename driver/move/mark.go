package move

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/driver/request"
)

// markBytes is the size of the mark. The mark fits in one block of any device, so it can be written
// and replaced atomically.
const markBytes = 4096

// markOf returns the contents of the first block of an unfinished copy of a volume. The mark cannot
// be mistaken for a file system or partition table, because it contains no magic number. If base is
// not empty, the rest of the copy equals the snapshot with this UUID.
func markOf(source, base string) []byte {
	text := fmt.Sprintf("spdk-csi move: this volume is an unfinished copy of %s.\nRepeat the command spdk-csi move to complete it.\n", source)
	if base != "" {
		text += basePrefix + base + "\n"
	}
	return append([]byte(text), make([]byte, markBytes-len(text))...)
}

const basePrefix = "Except for this block, it equals snapshot "

// readMark reports whether the first block of a copy of source contains a mark, and returns the
// base in the mark.
func readMark(first []byte, source string) (base string, marked bool) {
	text := string(bytes.TrimRight(first, "\x00"))
	rest, marked := strings.CutPrefix(text, string(bytes.TrimRight(markOf(source, ""), "\x00")))
	base = strings.TrimSuffix(strings.TrimPrefix(rest, basePrefix), "\n")
	if id, err := request.ParseVolumeID(base); err != nil || id.Target != "" || !bytes.Equal(first, markOf(source, base)) {
		return "", marked
	}
	return base, marked
}

// A condition is the state of a copy.
type condition int

const (
	fresh      condition = iota // created, but never written to
	unfinished                  // starts with the mark
	finished                    // complete, and possibly written to since then
)

// examine returns the condition of a copy. If the copy has been prepared, it also returns the UUID
// of the snapshot that the copy equals.
func examine(copied *device, original string, isNew bool) (is condition, base string, err error) {
	first, err := copied.first()
	if err != nil {
		return 0, "", err
	}
	base, marked := readMark(first, original)
	switch {
	case marked:
		return unfinished, base, nil
	case isNew && isZero(first):
		return fresh, "", nil
	}
	return finished, "", nil
}

// end replaces the mark with the original's first block, which completes the copy.
func end(copied, original *device) error {
	first, err := original.first()
	if err != nil {
		return err
	}
	if err := copied.setFirst(first); err != nil {
		return err
	}
	got, err := copied.first()
	if err == nil && !bytes.Equal(got, first) {
		err = fmt.Errorf("%w in the first %d bytes", ErrDiffers, markBytes)
	}
	return err
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
