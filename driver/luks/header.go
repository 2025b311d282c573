package luks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
)

// The mark of an unused device is in the header's field "subsystem". luksFormat writes the mark
// together with the header.
const (
	subsystemNew  = "spdkcsi-new" // nothing has been stored on the device yet
	subsystemUsed = "spdkcsi"
)

// A header contains the fields of a device's first LUKS header that this package reads.
type header struct {
	version   int // 0 if there is no header
	subsystem string
}

func (h header) unused() bool { return h.version == 2 && h.subsystem == subsystemNew }

// readHeader reads the header at the beginning of a device. The LUKS2 On-Disk Format Specification
// defines the layout: the magic, the version at byte 6, and the subsystem at byte 208. The three
// fields are in one sector, so they are consistent with each other.
func readHeader(device string) (header, error) {
	const sector, subsystemAt, subsystemLength = 512, 208, 48
	f, err := os.Open(device)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	b := make([]byte, sector)
	if _, err := io.ReadFull(f, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return header{}, nil
		}
		return header{}, err
	}
	if !bytes.HasPrefix(b, []byte("LUKS\xba\xbe")) {
		return header{}, nil
	}
	text, _, _ := strings.Cut(string(b[subsystemAt:subsystemAt+subsystemLength]), "\x00")
	return header{int(binary.BigEndian.Uint16(b[6:])), text}, nil
}
