package move

import (
	"bytes"
	"fmt"
)

// markBytes is the size of the mark. It fits in one block of any device, so it can be written and
// replaced atomically.
const markBytes = 4096

// markOf returns the contents of the first block of an unfinished copy of a volume. The mark cannot
// be mistaken for a file system or partition table, because it contains no magic number.
func markOf(source string) []byte {
	text := fmt.Sprintf("spdk-csi move: this volume is an unfinished copy of %s.\nRepeat the command spdk-csi move to complete it.\n", source)
	return append([]byte(text), make([]byte, markBytes-len(text))...)
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
