package class

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ErrParameter is the kind of the error for a parameter that is unknown, or has a value that it cannot have.
var ErrParameter = errors.New("invalid class parameter")

// A Class is what the parameters of a StorageClass and a VolumeAttributesClass ask for.
type Class struct {
	// FSType is ext4, xfs or btrfs, or empty.
	FSType string
	// MkfsOptions are the options of mkfs; which are allowed depends on the file system (package mkfs).
	MkfsOptions string
	// VolumeUUID gives each xfs and btrfs the UUID of its volume, also copies.
	VolumeUUID bool
	// Targets, TargetLabels and Stores limit where volumes are made; anywhere when empty. A target has all of the labels.
	Targets, Stores []string
	TargetLabels    map[string]string
	// Strategy chooses among the lvstores that are left; Spread when empty.
	Strategy Strategy
	// Thick volumes get all of their clusters when they are made.
	Thick bool
	// Clear says what becomes of the contents of clusters that a volume gives back; ClearZeroes when empty.
	Clear Clear
	// Limits bound the volume's I/O.
	Limits Limits
	// NVMe are the options with which nodes connect, by the kernel's names for them.
	NVMe map[string]string
	// Authentication says how nodes authenticate to the target; NoAuthentication when empty.
	Authentication Authentication
	// Encryption says how nodes encrypt the volume; NoEncryption when empty.
	Encryption Encryption
	// EncryptionDiscards passes discards of encrypted volumes on to the target.
	EncryptionDiscards bool
}

// An Encryption says how nodes encrypt a volume.
type Encryption string

// The values of Encryption.
const (
	NoEncryption Encryption = ""
	LUKS2        Encryption = "luks2"
)

// An Authentication says how nodes authenticate to the target before they can use a volume.
type Authentication string

// The values of Authentication.
const (
	NoAuthentication Authentication = ""
	DHCHAP           Authentication = "dhchap" // over NVMe-oF: DH-HMAC-CHAP
	CHAP             Authentication = "chap"   // over iSCSI
)

// A Strategy says which of several lvstores takes a volume.
type Strategy string

// The values of Strategy. The zero Strategy is Spread.
const (
	// Spread takes lvstores at random, in proportion to their free space.
	Spread Strategy = "spread"
	// MostFree takes the lvstore with the most room for volumes.
	MostFree Strategy = "most-free"
	// BinPack takes the lvstore with the least room, so that others stay empty for large volumes.
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

// A Clear says what becomes of the contents of clusters that a volume gives back. SPDK clears clusters when they are
// freed, by the method that was recorded when the volume was created, and never when they are allocated: what was not
// cleared shows in the next volume that gets the cluster.
type Clear string

// The values of Clear. The zero Clear is ClearZeroes.
const (
	// ClearZeroes makes clusters read as zeroes: by unmap if the bdev below the lvstore is known to zero what it unmaps,
	// else by writing zeroes.
	ClearZeroes Clear = "zeroes"
	// ClearWriteZeroes writes zeroes, whatever the lvstore is on.
	ClearWriteZeroes Clear = "write_zeroes"
	// ClearUnmap unmaps clusters, even if their data stays readable.
	ClearUnmap Clear = "unmap-may-expose-deleted-data"
	// ClearNone leaves clusters as they are.
	ClearNone Clear = "none-exposes-deleted-data"
)

// A parameter of a StorageClass.
type parameter struct {
	values string                    // the allowed values, for error messages
	set    func(*Class, string) bool // returns false if the value is not allowed
}

var parameters = map[string]parameter{
	"fsType": {"ext4, xfs or btrfs", setFSType},
	"fstype": {"ext4, xfs or btrfs", setFSType}, // spdk-csi's spelling
	"mkfsOptions": {"options of mkfs, like -m reflink=0", func(c *Class, v string) bool {
		c.MkfsOptions = v
		return strings.TrimSpace(v) != ""
	}},
	"filesystemUUID": {"volume; leave it out to keep the UUID that a copy has from its source", func(c *Class, v string) bool {
		c.VolumeUUID = v == "volume"
		return c.VolumeUUID
	}},
	"target":       {"the name of a target in config.json, or several with commas between them", func(c *Class, v string) bool { return setList(&c.Targets, v) }},
	"lvstore":      {"the name of an lvstore, or several with commas between them", func(c *Class, v string) bool { return setList(&c.Stores, v) }},
	"targetLabels": {"labels of targets in config.json, like disk=nvme,rack=7", setTargetLabels},
	"placement": {"spread (the default), most-free or binpack", func(c *Class, v string) bool {
		c.Strategy = Strategy(v)
		return slices.Contains([]Strategy{Spread, MostFree, BinPack}, c.Strategy)
	}},
	"thin": {"true (the default) or false", func(c *Class, v string) bool {
		thin, err := strconv.ParseBool(v)
		c.Thick = !thin
		return err == nil
	}},
	"authentication": {"dhchap for NVMe-oF or chap for iSCSI; leave it out for none", func(c *Class, v string) bool {
		c.Authentication = Authentication(v)
		return slices.Contains([]Authentication{DHCHAP, CHAP}, c.Authentication)
	}},
	"encryption": {"luks2; leave it out for none", func(c *Class, v string) bool {
		c.Encryption = Encryption(v)
		return c.Encryption == LUKS2
	}},
	"encryptionDiscards": {"true or false (the default)", func(c *Class, v string) bool {
		c.EncryptionDiscards = v == "true"
		return v == "true" || v == "false"
	}},
	"clearMethod": {"zeroes (the default), write_zeroes, or one that lets others read what deleted volumes held: unmap-may-expose-deleted-data, none-exposes-deleted-data", setClear},
}

// setList reads names with commas between them.
func setList(list *[]string, v string) bool {
	for name := range strings.SplitSeq(v, ",") {
		*list = append(*list, strings.TrimSpace(name))
	}
	return !slices.Contains(*list, "")
}

// setTargetLabels reads pairs key=value with commas between them.
func setTargetLabels(c *Class, v string) bool {
	c.TargetLabels = map[string]string{}
	for pair := range strings.SplitSeq(v, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if _, twice := c.TargetLabels[key]; !ok || key == "" || twice {
			return false
		}
		c.TargetLabels[key] = value
	}
	return true
}

func setFSType(c *Class, v string) bool {
	c.FSType = v
	return v == "ext4" || v == "xfs" || v == "btrfs"
}

// setClear reads unmap, the default of earlier versions, as the present default.
func setClear(c *Class, v string) bool {
	if v == "unmap" {
		v = string(ClearZeroes)
	}
	c.Clear = Clear(v)
	return slices.Contains([]Clear{ClearZeroes, ClearWriteZeroes, ClearUnmap, ClearNone}, c.Clear)
}

// sidecarPrefix begins the keys that Kubernetes' sidecars add for their own use.
const sidecarPrefix = "csi.storage.k8s.io/"

// Parse reads the parameters of a StorageClass, and those of a VolumeAttributesClass, which count more. Errors are of kind
// [ErrParameter].
func Parse(storage, mutable map[string]string) (Class, error) {
	var c Class
	for _, key := range slices.Sorted(maps.Keys(storage)) {
		if strings.HasPrefix(key, sidecarPrefix) {
			continue
		}
		p, ok := parameters[key]
		if !ok {
			p, ok = limits[key]
		}
		if !ok {
			p, ok = nvmeOptions[key]
		}
		if !ok {
			return c, fmt.Errorf("%w: %q is unknown: use %s", ErrParameter, key, strings.Join(names(), ", "))
		}
		if !p.set(&c, storage[key]) {
			return c, fmt.Errorf("%w: %s is %q: use %s", ErrParameter, key, storage[key], p.values)
		}
	}
	if err := c.checkNVMe(); err != nil {
		return c, err
	}
	if c.EncryptionDiscards && c.Encryption == NoEncryption {
		return c, fmt.Errorf("%w: encryptionDiscards is given without encryption: add encryption, or remove it", ErrParameter)
	}
	l, err := ParseMutable(mutable)
	c.Limits = c.Limits.With(l)
	return c, err
}

// CheckSnapshot refuses parameters of a VolumeSnapshotClass: snapshots have none. Errors are of kind [ErrParameter].
func CheckSnapshot(snapshot map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(snapshot)) {
		// spdk-csi's sample class sets fsType, which means nothing for a snapshot.
		if key != "fsType" && !strings.HasPrefix(key, sidecarPrefix) {
			return fmt.Errorf("%w: VolumeSnapshotClass parameter %q is unknown: use only csi.storage.k8s.io/snapshotter-secret-name and -namespace", ErrParameter, key)
		}
	}
	return nil
}
