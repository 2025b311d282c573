package mirror

import (
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

type memory struct {
	*world
	uuid, dev string
	gone      bool
	failing   error                         // returned by reads
	parts     [HeadBytes / blankPart][]byte // nil: zeroes
	length    int64
	formatted string // how the log was formatted since a table last used it, clear or set
}

func (w *world) open(path string) (disk, error) { return w.disks[path], w.request("open a disk") }

func (w *world) number(path string) (string, error) {
	return w.disks[path].dev, w.request("number of a disk")
}

func (d *memory) ReadAt(b []byte, at int64) (int, error) {
	if err := d.request("read a disk"); err != nil {
		return 0, err
	}
	if part := d.parts[at/blankPart]; part != nil {
		return copy(b, part[at%blankPart:]), d.failing
	}
	clear(b)
	return len(b), d.failing
}

// put changes the replica's contents without recording a step.
func (d *memory) put(at int64, b ...byte) int {
	part := &d.parts[at/blankPart]
	if *part == nil {
		*part = make([]byte, blankPart)
	}
	return copy((*part)[at%blankPart:], b)
}

func (d *memory) WriteAt(b []byte, at int64) (int, error) {
	if at == logOffset {
		return d.writeLog(b)
	}
	s, err := decodeSuperblock(b)
	require.NoError(d.t, err)
	if err := d.step("superblock %d at %d: inSync=%v rebuild=%d", s.ID, at, s.InSync.IDs(), s.Rebuild); err != nil {
		return 0, err
	}
	if d.world.witness.Created {
		assert.True(d.t, s.InSync.Contains(d.world.witness.InSync), "a superblock claims that a listed replica failed")
		if s.Rebuild != replica.NoRebuild {
			assert.False(d.t, d.world.witness.InSync.Has(s.ID), "a listed replica is overwritten")
			assert.True(d.t, d.world.witness.Held.Has(s.ID), "a replica is overwritten that is not listed in Held")
		}
	}
	return d.put(at, b...), nil
}

func (d *memory) writeLog(b []byte) (int, error) {
	formatted, ok := map[string]string{"\xff\xff\xff\xff\xff\xff\xff\xff": "clear", strings.Repeat("\x00", 8): "set"}[string(b[logHeadBytes:logHeadBytes+8])]
	assert.True(d.t, ok && zero(b[logHeadBytes+8:]) && len(b) == superblockBytes, "the log's bits do not match its 64 regions")
	assert.Equal(d.t, "\x72\x52\x69\x4d\x02\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00", string(b[:16]))
	if m := d.mapped["spdkmirror-"+testID]; m != nil && !m.suspended {
		t, err := parseTable(m.active)
		assert.True(d.t, err == nil && t.log == "", "a log is formatted while the kernel uses it")
	}
	if err := d.step("log of %s: %s marks", d.uuid, formatted); err != nil {
		return 0, err
	}
	d.formatted = formatted
	return len(b), nil
}

func (d *memory) Close() error            { return nil }
func (d *memory) size() (int64, error)    { return d.length, d.request("size of a disk") }
func (d *memory) number() (string, error) { return d.dev, d.request("number of an open disk") }
