package tenancy

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
)

// A bdev is what bdev_get_bdevs tells, as far as it matters here.
type bdev struct {
	name      string
	aliases   []string
	uuid      string
	blockSize uint64
	numBlocks uint64
	lvol      bool
	store     string // UUID of a logical volume's lvstore
	odd       bool   // what it is, or whose, cannot be told
}

func (b *bdev) size() uint64 {
	if over, bytes := bits.Mul64(b.blockSize, b.numBlocks); over == 0 {
		return bytes
	}
	return math.MaxUint64
}

var errNoJSON = errors.New("it is no JSON, or not what the schema says")

// eachBdev reads an answer to bdev_get_bdevs. What it hands out lasts until the
// next one.
func eachBdev(answer string, visit func(*bdev) error) error {
	t := &jsonText{s: answer}
	unreadable := &unreadableError{"bdev_get_bdevs", errNoJSON}
	i := t.space(0)
	if t.typeAt(i) != isArray {
		return unreadable
	}
	var b bdev
	w := t.walk(i)
	for w.next() {
		if t.typeAt(w.value) != isObject {
			return unreadable
		}
		b = bdev{aliases: b.aliases[:0]}
		w.end = b.read(t, w.value)
		if err := visit(&b); err != nil {
			return err
		}
	}
	if t.bad {
		return unreadable
	}
	return nil
}

// read reads a bdev that begins at i.
func (b *bdev) read(t *jsonText, i int) (end int) {
	w := t.walk(i)
	for w.next() {
		switch w.name {
		case "name":
			w.end = b.take(t, w.value, &b.name)
		case "uuid":
			w.end = b.take(t, w.value, &b.uuid)
		case "block_size":
			w.end = b.count(t, w.value, &b.blockSize)
		case "num_blocks":
			w.end = b.count(t, w.value, &b.numBlocks)
		case "aliases":
			w.end = b.readAliases(t, w.value)
		case "driver_specific":
			w.end = b.readMember(t, w.value, "lvol", b.readVolume)
		default:
			w.end = t.skip(w.value)
		}
	}
	return w.end
}

// readMember reads one member of an object, wherever it stands there.
func (b *bdev) readMember(t *jsonText, i int, name string, read func(t *jsonText, i int) int) (end int) {
	if t.typeAt(i) != isObject {
		return t.skip(i)
	}
	w := t.walk(i)
	for w.next() {
		if w.name == name {
			w.end = read(t, w.value)
		} else {
			w.end = t.skip(w.value)
		}
	}
	return w.end
}

func (b *bdev) readVolume(t *jsonText, i int) (end int) {
	b.lvol = true
	return b.readMember(t, i, "lvol_store_uuid", func(t *jsonText, i int) int { return b.take(t, i, &b.store) })
}

func (b *bdev) readAliases(t *jsonText, i int) (end int) {
	if t.typeAt(i) != isArray {
		b.odd = true
		return t.skip(i)
	}
	w := t.walk(i)
	for w.next() {
		var alias string
		w.end = b.take(t, w.value, &alias)
		b.aliases = append(b.aliases, alias)
	}
	return w.end
}

// take reads a text. One that stands there twice must be the same.
func (b *bdev) take(t *jsonText, i int, into *string) (end int) {
	value, sound, end := t.textAt(i)
	b.odd = b.odd || !sound || *into != "" && *into != value
	*into = value
	return end
}

func (b *bdev) count(t *jsonText, i int, into *uint64) (end int) {
	end = t.skip(i)
	n, err := strconv.ParseUint(t.s[i:end], 10, 64)
	b.odd = b.odd || err != nil || *into != 0 && *into != n
	*into = n
	return end
}

// eachVolume reads an answer to bdev_lvol_get_lvols: UUIDs of volumes and of
// their lvstores. Of a volume that says several things nothing is told.
func eachVolume(answer string, visit func(volume, lvs string) error) error {
	t := &jsonText{s: answer}
	unreadable := &unreadableError{"bdev_lvol_get_lvols", errNoJSON}
	i := t.space(0)
	if t.typeAt(i) != isArray {
		return unreadable
	}
	w := t.walk(i)
	for w.next() {
		if t.typeAt(w.value) != isObject {
			return unreadable
		}
		var b bdev
		m := t.walk(w.value)
		for m.next() {
			switch m.name {
			case "uuid":
				m.end = b.take(t, m.value, &b.uuid)
			case "lvs":
				m.end = b.readMember(t, m.value, "uuid", func(t *jsonText, i int) int { return b.take(t, i, &b.store) })
			default:
				m.end = t.skip(m.value)
			}
		}
		w.end = m.end
		if b.odd {
			continue
		}
		if err := visit(b.uuid, b.store); err != nil {
			return err
		}
	}
	if t.bad {
		return unreadable
	}
	return nil
}
