package move

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/driver/request"
)

// markBytes is the size of the mark. It fits in one block of any device, so it can be written and
// replaced atomically.
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

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
