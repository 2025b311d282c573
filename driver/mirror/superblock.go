package mirror

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// The layout of a replica, in bytes. The head contains two copies of the superblock, and the log.
const (
	// HeadBytes is the size of the head. The volume's data follows the head.
	HeadBytes       = replica.HeadBytes
	logOffset       = 512 << 10
	superblockBytes = 4096
	sectorBytes     = 512
)

var superblockOffsets = [2]int64{0, 256 << 10}

// magic is at the beginning of each superblock.
var magic = [16]byte([]byte("SPDKGate replica"))

const superblockVersion = 1

// errDamaged means that a block begins with the magic, but is not a valid superblock.
var errDamaged = errors.New("damaged superblock")

// A superblock is the record on a replica. A snapshot or clone of a replica contains the superblock
// of its source, but has a different UUID, which distinguishes it from the replica.
type superblock struct {
	replica.Superblock
	Volume string
	ID     replica.ID
	// UUID is the UUID of the replica's namespace.
	UUID string
	// Size is the volume's size in bytes, and Region is the size of a region of the log.
	Size, Region int64
	// Sequence increases by one with each write of the superblock.
	Sequence uint64
	// Together is the epoch of the last superblock that was written to both replicas. A replica
	// with an earlier epoch contains old data.
	Together uint64
}

// superblockFormat is the little-endian format of a superblock on a replica.
type superblockFormat struct {
	Magic                                 [16]byte
	Version, Checksum                     uint32
	Sequence, Epoch, Size, Region         uint64
	ID, InSync, Rebuild, VolumeLen, Spare uint8
	UUIDLen                               uint8
	Volume                                [128]byte
	UUID                                  [64]byte
	Together                              uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the superblock as one block.
func (s superblock) encode() ([]byte, error) {
	f := superblockFormat{
		Magic: magic, Version: superblockVersion, Sequence: s.Sequence, Epoch: s.Epoch, Size: uint64(s.Size), Region: uint64(s.Region),
		ID: uint8(s.ID), InSync: uint8(s.InSync), Rebuild: uint8(s.Rebuild), VolumeLen: uint8(len(s.Volume)), UUIDLen: uint8(len(s.UUID)),
		Together: s.Together,
	}
	if copy(f.Volume[:], s.Volume) != len(s.Volume) || copy(f.UUID[:], s.UUID) != len(s.UUID) {
		return nil, fmt.Errorf("the volume's id %q or the replica's UUID %q is too long for a superblock", s.Volume, s.UUID)
	}
	block := make([]byte, superblockBytes)
	if _, err := binary.Encode(block, binary.LittleEndian, f); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(block[checksumOffset:], checksum(block))
	return block, nil
}

const checksumOffset = 20

// checksum returns the checksum of a block. The field that contains the checksum itself is treated
// as zero.
func checksum(block []byte) uint32 {
	sum := crc32.Update(0, castagnoli, block[:checksumOffset])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	return crc32.Update(sum, castagnoli, block[checksumOffset+4:])
}

// decodeSuperblock decodes a block that begins with the magic.
func decodeSuperblock(block []byte) (superblock, error) {
	var f superblockFormat
	if _, err := binary.Decode(block, binary.LittleEndian, &f); err != nil {
		return superblock{}, err
	}
	switch {
	case f.Checksum != checksum(block):
		return superblock{}, fmt.Errorf("%w: its checksum does not match", errDamaged)
	case f.Version != superblockVersion:
		return superblock{}, fmt.Errorf("%w: its version is %d, but this driver supports only version %d", errDamaged, f.Version, superblockVersion)
	case int(f.VolumeLen) > len(f.Volume) || int(f.UUIDLen) > len(f.UUID) || f.ID >= replica.MaxReplicas || f.InSync == 0 ||
		f.InSync >= 1<<replica.MaxReplicas || f.Rebuild > uint8(replica.InFull) || f.Size > 1<<62 || f.Region > 1<<62:
		return superblock{}, fmt.Errorf("%w: its values are impossible", errDamaged)
	}
	return superblock{
		Superblock: replica.Superblock{Epoch: f.Epoch, InSync: replica.Set(f.InSync), Rebuild: replica.Rebuild(f.Rebuild)},
		Volume:     string(f.Volume[:f.VolumeLen]), ID: replica.ID(f.ID), UUID: string(f.UUID[:f.UUIDLen]),
		Size: int64(f.Size), Region: int64(f.Region), Sequence: f.Sequence, Together: f.Together,
	}, nil
}

// readHead determines what the head of a replica contains. The superblock is valid if the state is
// Ours. If the state is Foreign or Unreadable, the error contains the reason.
func readHead(d disk) (replica.State, superblock, error) {
	var found []superblock
	var damaged error
	foreign := false
	block := make([]byte, superblockBytes)
	for _, at := range superblockOffsets {
		if _, err := d.ReadAt(block, at); err != nil {
			return replica.Unreadable, superblock{}, fmt.Errorf("read the superblock at %d: %w", at, err)
		}
		switch {
		case bytes.HasPrefix(block, magic[:]):
			if s, err := decodeSuperblock(block); err == nil {
				found = append(found, s)
			} else {
				damaged = err
			}
		case !zero(block):
			foreign = true
		}
	}
	switch {
	case len(found) == 2 && found[1].Sequence > found[0].Sequence:
		return replica.Ours, found[1], nil
	case len(found) > 0: // a write of the other copy was interrupted
		return replica.Ours, found[0], nil
	case damaged != nil:
		return replica.Unreadable, superblock{}, damaged
	case foreign:
		return replica.Foreign, superblock{}, errors.New("the device contains data that is not a replica")
	}
	return readBlank(d)
}

// blankPart is the size of the reads of a head without superblocks.
const blankPart = 256 << 10

// readBlank determines whether a head without superblocks is empty.
func readBlank(d disk) (replica.State, superblock, error) {
	part := make([]byte, blankPart)
	for at := int64(0); at < HeadBytes; at += int64(len(part)) {
		if _, err := d.ReadAt(part, at); err != nil {
			return replica.Unreadable, superblock{}, fmt.Errorf("read at %d: %w", at, err)
		}
		if !zero(part) {
			return replica.Foreign, superblock{}, fmt.Errorf("the device has no superblock, but contains data in the %d KiB from offset %d", len(part)>>10, at)
		}
	}
	return replica.Blank, superblock{}, nil
}

// writeSuperblock writes both copies of the superblock, the older one first, so that at least one
// copy is valid after an interruption.
func writeSuperblock(d disk, s superblock) error {
	block, err := s.encode()
	if err != nil {
		return err
	}
	order := superblockOffsets
	current := make([]byte, superblockBytes)
	if _, err := d.ReadAt(current, order[0]); err != nil {
		return fmt.Errorf("read the superblock at %d: %w", order[0], err)
	}
	if first, err := decodeSuperblock(current); err == nil && first.Sequence == s.Sequence-1 {
		order[0], order[1] = order[1], order[0]
	}
	for _, at := range order {
		if _, err := d.WriteAt(block, at); err != nil {
			return fmt.Errorf("write the superblock at %d: %w", at, err)
		}
	}
	return nil
}

var zeroes [blankPart]byte

func zero(b []byte) bool { return bytes.Equal(b, zeroes[:len(b)]) }
