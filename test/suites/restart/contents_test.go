package restart

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"unicode/utf16"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// These UUIDs are placeholders: forgeAll writes them, and the method contents.of replaces them with
// those of real objects.
const (
	anyVictim   = "11111111-1111-4111-8111-111111111111"
	anySnapshot = "22222222-2222-4222-8222-222222222222"
	anyDecoy    = "33333333-3333-4333-8333-333333333333"
)

// contents contains the data that a hostile tenant writes to volumes, without the empty end of the
// volume.
type contents struct {
	inner, twin, raid, gpt, ftl []byte
	raidMember                  uuid.UUID
}

// forgeAll creates all contents: a RAID with the given name; an lvstore with the name and the
// volume of another tenant's lvstore; and an lvstore with clones, one of which contains a RAID with
// that name.
func (w *testbed) forgeAll(twin, raid string) contents {
	w.t.Helper()
	c := contents{
		inner: w.forge("inner", forgedLvol{name: "loot", uuid: anyDecoy, parent: anySnapshot}, forgedLvol{name: "raided", parent: anyVictim, raid: raid}),
		twin:  w.forge(twin, forgedLvol{name: "secret", uuid: anyVictim, parent: anySnapshot}),
		gpt:   partitionTable(64 << 20 / blockBytes),
		ftl:   make([]byte, 1<<20),
	}
	binary.LittleEndian.PutUint64(c.ftl, 0x1410<<48|0x1683<<32|0x1920<<16|0x1989) // FTL_SUPERBLOCK_MAGIC
	c.raid = w.asOwnTarget(false, func(call func(method string, params p, result any)) {
		var own []struct{ UUID uuid.UUID }
		call("bdev_get_bdevs", p{"name": "own"}, &own)
		c.raidMember = own[0].UUID
		call("bdev_raid_create", p{"name": raid, "raid_level": "concat", "strip_size_kb": 4, "base_bdevs": []string{"own"}, "superblock": true}, nil)
	})
	for _, image := range []*[]byte{&c.inner, &c.twin, &c.raid} {
		end := len(bytes.TrimRight(*image, "\x00"))
		*image = slices.Clip((*image)[:(end+1<<20-1)>>20<<20])
	}
	return c
}

// of returns the contents for a volume. The contents refer to another tenant's volume and its
// snapshot, and to a UUID for a clone.
func (c contents) of(w *testbed, volume, victim, snapshot, decoy string) map[string][]byte {
	w.t.Helper()
	all := map[string][]byte{"inner": slices.Clone(c.inner), "twin": slices.Clone(c.twin), "RAID": slices.Clone(c.raid), "GPT": slices.Clone(c.gpt), "FTL": slices.Clone(c.ftl)}
	for from, to := range map[string]string{anyVictim: victim, anySnapshot: snapshot} {
		w.replace(all["inner"], from, to)
		w.replace(all["twin"], from, to)
	}
	w.replace(all["inner"], anyDecoy, decoy)
	superblock, id := all["RAID"], uuid.MustParse(volume)
	length := binary.LittleEndian.Uint32(superblock[12:])
	require.Equal(w.t, binary.LittleEndian.Uint32(superblock[16:]), crcOfRAID(superblock[:length]))
	at := bytes.Index(superblock, c.raidMember[:])
	require.Positive(w.t, at)
	copy(superblock[at:], id[:])
	binary.LittleEndian.PutUint32(superblock[16:], crcOfRAID(superblock[:length]))
	return all
}

// crcOfRAID returns the CRC of a superblock, computed with the CRC field set to 0.
func crcOfRAID(superblock []byte) uint32 {
	b := slices.Clone(superblock)
	clear(b[16:20])
	return ^crc32.Update(^uint32(0), crc32.MakeTable(crc32.Castagnoli), b)
}

const blockBytes = 4096

// partitionTable returns a GPT for a device with one partition for SPDK.
func partitionTable(blocks uint64) []byte {
	le := binary.LittleEndian
	image := make([]byte, 1<<20)
	copy(image[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	le.PutUint32(image[458:], uint32(blocks-1))
	copy(image[510:], []byte{0x55, 0xaa})
	entries := image[2*blockBytes : 2*blockBytes+128*128]
	le.PutUint32(entries, 0x6527994e) // SPDK_GPT_PART_TYPE_GUID
	le.PutUint16(entries[4:], 0x2c5a)
	le.PutUint16(entries[6:], 0x4eec)
	copy(entries[8:], []byte{0x96, 0x13, 0x8f, 0x59, 0x44, 0x07, 0x4e, 0x8b})
	copy(entries[16:], "a GUID by chance")
	le.PutUint64(entries[32:], 16)
	le.PutUint64(entries[40:], blocks-16)
	for i, c := range utf16.Encode([]rune("part")) {
		le.PutUint16(entries[56+2*i:], c)
	}
	header := image[blockBytes : blockBytes+92]
	copy(header, "EFI PART")
	le.PutUint32(header[8:], 0x10000)
	le.PutUint32(header[12:], 92)
	for i, lba := range []uint64{1, blocks - 1, 6, blocks - 6} {
		le.PutUint64(header[24+8*i:], lba)
	}
	copy(header[56:], "a disk by chance")
	le.PutUint64(header[72:], 2)
	le.PutUint32(header[80:], 128)
	le.PutUint32(header[84:], 128)
	le.PutUint32(header[88:], crc32.ChecksumIEEE(entries))
	le.PutUint32(header[16:], crc32.ChecksumIEEE(header))
	return image
}

// mutate changes random bytes, most of them near bytes that are not 0.
func mutate(r *rand.Rand, image []byte) {
	for range 1 + r.IntN(100) {
		at := r.IntN(len(image))
		if i := bytes.IndexFunc(image[at:], func(c rune) bool { return c != 0 }); i >= 0 {
			at += i
		}
		image[at] = byte(r.Uint32())
	}
}
