package class

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrParameter means that a parameter is unknown or has an invalid value.
var ErrParameter = errors.New("invalid class parameter")

// A Class contains the settings requested by the parameters of a StorageClass and a
// VolumeAttributesClass.
type Class struct {
	// FSType is ext4, xfs or btrfs, or empty.
	FSType string
	// MkfsOptions contains options for mkfs. The file system determines which options are allowed
	// (package mkfs).
	MkfsOptions string
	// VolumeUUID gives each xfs or btrfs file system the UUID of its volume, even if the volume is
	// a copy.
	VolumeUUID bool
	// Targets, TargetLabels and Stores limit where volumes are created; empty means anywhere. A
	// target must have all of the labels.
	Targets, Stores []string
	TargetLabels    map[string]string
	// Strategy is the rule for choosing among the remaining lvstores; empty means Spread.
	Strategy Strategy
	// Thick allocates all clusters of a volume when the volume is created.
	Thick bool
	// Replicas is the number of storage servers that store a copy of the volume; 0 means 1.
	Replicas int
	// ReplicaSpread is the name of a label whose values differ between the targets of the replicas;
	// empty means that any two targets will do.
	ReplicaSpread string
	// Clear selects what happens to the contents of clusters that a volume frees; empty means
	// ClearZeroes.
	Clear Clear
	// Limits bound the volume's I/O.
	Limits Limits
	// NVMe contains the options that nodes connect with, keyed by the kernel's names for them.
	NVMe map[string]string
	// Authentication is the method that nodes use to authenticate to the target; empty means
	// NoAuthentication.
	Authentication Authentication
	// ForNodes contains the parameters that nodes read from the volume context, unchanged, keyed by
	// name.
	ForNodes map[string]string
	// Encryption is the method that nodes use to encrypt the volume; empty means NoEncryption.
	Encryption Encryption
	// EncryptionDiscards reports whether nodes pass discards of encrypted volumes on to the target.
	EncryptionDiscards bool
}

// An Encryption selects how nodes encrypt a volume.
type Encryption string

// The values of Encryption.
const (
	NoEncryption Encryption = ""
	LUKS2        Encryption = "luks2"
)

// An Authentication selects how nodes authenticate to the target before they can use a volume.
type Authentication string

// The values of Authentication.
const (
	NoAuthentication Authentication = ""
	DHCHAP           Authentication = "dhchap" // over NVMe-oF: DH-HMAC-CHAP
	CHAP             Authentication = "chap"   // over iSCSI
)

// A Strategy is a rule for choosing a volume's lvstore.
type Strategy string

// The values of Strategy. The zero Strategy is Spread.
const (
	// Spread chooses lvstores at random, in proportion to their free space.
	Spread Strategy = "spread"
	// MostFree chooses the lvstore with the most space for volumes.
	MostFree Strategy = "most-free"
	// BinPack chooses the lvstore with the least space, so that other lvstores remain empty for
	// large volumes.
	BinPack Strategy = "binpack"
)

// Allows reports whether the class allows volumes on a target with this name and these labels.
func (c Class) Allows(target string, labels map[string]string) bool {
	for key, value := range c.TargetLabels {
		if v, ok := labels[key]; !ok || v != value {
			return false
		}
	}
	return len(c.Targets) == 0 || slices.Contains(c.Targets, target)
}

// A Clear selects what happens to the contents of clusters that a volume frees. SPDK clears
// clusters when they are freed, by the method that was recorded when the volume was created. SPDK
// never clears clusters when they are allocated, so data left in a cluster is readable in the next
// volume that uses the cluster.
type Clear string

// The values of Clear. The zero Clear is ClearZeroes.
const (
	// ClearZeroes makes clusters read as zeroes. It unmaps clusters if the bdev below the lvstore
	// is known to zero unmapped blocks, and writes zeroes otherwise.
	ClearZeroes Clear = "zeroes"
	// ClearWriteZeroes writes zeroes, regardless of the bdev below the lvstore.
	ClearWriteZeroes Clear = "write_zeroes"
	// ClearUnmap unmaps clusters, even if their data may remain readable.
	ClearUnmap Clear = "unmap-may-expose-deleted-data"
	// ClearNone leaves clusters unchanged.
	ClearNone Clear = "none-exposes-deleted-data"
)

// sidecarPrefix is the prefix of the keys that Kubernetes' sidecars add for their own use.
const sidecarPrefix = "csi.storage.k8s.io/"

// Parse reads the parameters of a StorageClass and of a VolumeAttributesClass, which take
// precedence. Errors wrap [ErrParameter].
func Parse(storage, mutable map[string]string) (Class, error) {
	var c Class
	for _, key := range slices.Sorted(maps.Keys(storage)) {
		if strings.HasPrefix(key, sidecarPrefix) {
			continue
		}
		p, ok := find(key)
		if !ok {
			return c, fmt.Errorf("%w: %q is unknown: use %s", ErrParameter, key, names(false))
		}
		if !p.set(&c, storage[key]) {
			return c, fmt.Errorf("%w: %s is %q: use %s", ErrParameter, key, storage[key], p.Values)
		}
		if p.forNodes {
			if c.ForNodes == nil {
				c.ForNodes = map[string]string{}
			}
			c.ForNodes[p.Name] = storage[key]
		}
	}
	if err := c.checkNVMe(); err != nil {
		return c, err
	}
	if c.EncryptionDiscards && c.Encryption == NoEncryption {
		return c, fmt.Errorf("%w: encryptionDiscards is set without encryption: add encryption, or remove it", ErrParameter)
	}
	if c.ReplicaSpread != "" && c.Replicas != 2 {
		return c, fmt.Errorf("%w: replicaSpread is set without replicas: %q: add replicas, or remove it", ErrParameter, "2")
	}
	l, err := ParseMutable(mutable)
	c.Limits = c.Limits.With(l)
	return c, err
}

// CheckSnapshot rejects all parameters of a VolumeSnapshotClass, because snapshots have none.
// Errors wrap [ErrParameter].
func CheckSnapshot(snapshot map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(snapshot)) {
		// Ignore fsType, which the sample class of SPDK's spdk-csi sets although it has no meaning
		// for a snapshot.
		if key != "fsType" && !strings.HasPrefix(key, sidecarPrefix) {
			return fmt.Errorf("%w: VolumeSnapshotClass parameter %q is unknown: use only csi.storage.k8s.io/snapshotter-secret-name and -namespace", ErrParameter, key)
		}
	}
	return nil
}
