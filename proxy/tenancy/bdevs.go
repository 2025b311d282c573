package tenancy

import (
	"errors"
	"math"
	"math/bits"
	"strconv"

	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
)

// A bdev contains the members of an item in the result of bdev_get_bdevs that this package needs.
type bdev struct {
	name      string
	aliases   []string
	uuid      string
	blockSize uint64
	numBlocks uint64
	lvol      bool     // whether the bdev is a logical volume
	store     string   // UUID of the volume's lvstore
	bases     []string // the base bdevs, unless the bdev is a logical volume
	ambiguous bool     // the response is malformed or contradictory, so the owner is unknown
}

func (b *bdev) size() uint64 {
	if over, bytes := bits.Mul64(b.blockSize, b.numBlocks); over == 0 {
		return bytes
	}
	return math.MaxUint64
}

var errNoJSON = errors.New("the response is not JSON, or does not match the schema")

// eachBdev calls visit for each bdev in a response to bdev_get_bdevs. A bdev is valid until the
// next call of visit.
func eachBdev(answer string, visit func(*bdev) error) error {
	t := &jsonwalk.Text{S: answer}
	unreadable := &unreadableError{"bdev_get_bdevs", errNoJSON}
	i := t.Space(0)
	if t.TypeAt(i) != jsonwalk.Array {
		return unreadable
	}
	var b bdev
	w := t.Walk(i)
	for w.Next() {
		if t.TypeAt(w.Value) != jsonwalk.Object {
			return unreadable
		}
		b = bdev{aliases: b.aliases[:0], bases: b.bases[:0]}
		w.End = b.read(t, w.Value)
		if err := visit(&b); err != nil {
			return err
		}
	}
	if t.Bad {
		return unreadable
	}
	return nil
}

// read reads the bdev that begins at i.
func (b *bdev) read(t *jsonwalk.Text, i int) (end int) {
	w := t.Walk(i)
	for w.Next() {
		switch w.Name {
		case "name":
			w.End = b.readText(t, w.Value, &b.name)
		case "uuid":
			w.End = b.readText(t, w.Value, &b.uuid)
		case "block_size":
			w.End = b.readNumber(t, w.Value, &b.blockSize)
		case "num_blocks":
			w.End = b.readNumber(t, w.Value, &b.numBlocks)
		case "aliases":
			w.End = b.readAliases(t, w.Value)
		case "driver_specific":
			if w.End = b.readMember(t, w.Value, "lvol", b.readVolume); !b.lvol {
				b.readBases(t, w.Value)
			}
		default:
			w.End = t.Skip(w.Value)
		}
	}
	return w.End
}

// readMember reads one member of an object, and skips all others.
func (b *bdev) readMember(t *jsonwalk.Text, i int, name string, read func(t *jsonwalk.Text, i int) int) (end int) {
	if t.TypeAt(i) != jsonwalk.Object {
		return t.Skip(i)
	}
	w := t.Walk(i)
	for w.Next() {
		if w.Name == name {
			w.End = read(t, w.Value)
		} else {
			w.End = t.Skip(w.Value)
		}
	}
	return w.End
}

func (b *bdev) readVolume(t *jsonwalk.Text, i int) (end int) {
	b.lvol = true
	return b.readMember(t, i, "lvol_store_uuid", func(t *jsonwalk.Text, i int) int { return b.readText(t, i, &b.store) })
}

func (b *bdev) readAliases(t *jsonwalk.Text, i int) (end int) {
	if t.TypeAt(i) != jsonwalk.Array {
		b.ambiguous = true
		return t.Skip(i)
	}
	w := t.Walk(i)
	for w.Next() {
		var alias string
		w.End = b.readText(t, w.Value, &alias)
		b.aliases = append(b.aliases, alias)
	}
	return w.End
}

// readText reads a string. If a member occurs twice with different values, the bdev is ambiguous.
func (b *bdev) readText(t *jsonwalk.Text, i int, into *string) (end int) {
	value, sound, end := t.TextAt(i)
	b.ambiguous = b.ambiguous || !sound || *into != "" && *into != value
	*into = value
	return end
}

// readNumber is like readText, but reads a number.
func (b *bdev) readNumber(t *jsonwalk.Text, i int, into *uint64) (end int) {
	end = t.Skip(i)
	n, err := strconv.ParseUint(t.S[i:end], 10, 64)
	b.ambiguous = b.ambiguous || err != nil || *into != 0 && *into != n
	*into = n
	return end
}

// eachVolume calls visit for each volume in a response to bdev_lvol_get_lvols, with the UUIDs of
// the volume and of its lvstore. It skips ambiguous volumes.
func eachVolume(answer string, visit func(volume, lvs string) error) error {
	t := &jsonwalk.Text{S: answer}
	unreadable := &unreadableError{"bdev_lvol_get_lvols", errNoJSON}
	i := t.Space(0)
	if t.TypeAt(i) != jsonwalk.Array {
		return unreadable
	}
	w := t.Walk(i)
	for w.Next() {
		if t.TypeAt(w.Value) != jsonwalk.Object {
			return unreadable
		}
		var b bdev
		m := t.Walk(w.Value)
		for m.Next() {
			switch m.Name {
			case "uuid":
				m.End = b.readText(t, m.Value, &b.uuid)
			case "lvs":
				m.End = b.readMember(t, m.Value, "uuid", func(t *jsonwalk.Text, i int) int { return b.readText(t, i, &b.store) })
			default:
				m.End = t.Skip(m.Value)
			}
		}
		w.End = m.End
		if b.ambiguous {
			continue
		}
		if err := visit(b.uuid, b.store); err != nil {
			return err
		}
	}
	if t.Bad {
		return unreadable
	}
	return nil
}
