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
	// FSType is ext4 or xfs, or empty.
	FSType string
	// Target and Store limit where volumes are made; anywhere when empty.
	Target, Store string
	// Thick volumes get all of their clusters when they are made.
	Thick bool
	// Clear says what becomes of the contents of clusters that a volume gives back; ClearZeroes when empty.
	Clear Clear
}

// A Clear says what becomes of the contents of clusters that a volume gives back. SPDK clears clusters when they are
// freed, by the method that was recorded when the volume was created, and never when they are allocated: what was not
// cleared shows in the next volume that gets the cluster.
type Clear string

// The values of Clear. The zero Clear is ClearZeroes.
const (
	// ClearZeroes makes clusters read as zeroes: by unmap where the bdev below the lvstore is known to zero what it
	// unmaps, by writing zeroes elsewhere.
	ClearZeroes Clear = "zeroes"
	// ClearWriteZeroes writes zeroes wherever the lvstore lies.
	ClearWriteZeroes Clear = "write_zeroes"
	// ClearUnmap unmaps clusters, whatever can be read afterwards.
	ClearUnmap Clear = "unmap-may-expose-deleted-data"
	// ClearNone leaves clusters as they are.
	ClearNone Clear = "none-exposes-deleted-data"
)

// A parameter of a StorageClass.
type parameter struct {
	values string                    // that it takes, for people
	set    func(*Class, string) bool // false if the value is none of them
}

var parameters = map[string]parameter{
	"fsType":  {"ext4 or xfs", setFSType},
	"fstype":  {"ext4 or xfs", setFSType}, // spdk-csi's spelling
	"target":  {"the name of a target in config.json", func(c *Class, v string) bool { c.Target = v; return v != "" }},
	"lvstore": {"the name of an lvstore", func(c *Class, v string) bool { c.Store = v; return v != "" }},
	"thin": {"true (the default) or false", func(c *Class, v string) bool {
		thin, err := strconv.ParseBool(v)
		c.Thick = !thin
		return err == nil
	}},
	"clearMethod": {"zeroes (the default), write_zeroes, or one that lets others read what deleted volumes held: unmap-may-expose-deleted-data, none-exposes-deleted-data", setClear},
}

func setFSType(c *Class, v string) bool {
	c.FSType = v
	return v == "ext4" || v == "xfs"
}

// setClear reads unmap, the former default, as the present one: unmap where that zeroes.
func setClear(c *Class, v string) bool {
	if v == "unmap" {
		v = string(ClearZeroes)
	}
	c.Clear = Clear(v)
	return slices.Contains([]Clear{ClearZeroes, ClearWriteZeroes, ClearUnmap, ClearNone}, c.Clear)
}

// sidecarPrefix is what the keys begin with that Kubernetes' sidecars add for their own use.
const sidecarPrefix = "csi.storage.k8s.io/"

// Parse reads the parameters of a StorageClass, and the mutable ones of a VolumeAttributesClass. Errors are of kind
// [ErrParameter].
func Parse(storage, mutable map[string]string) (Class, error) {
	var c Class
	for _, key := range slices.Sorted(maps.Keys(storage)) {
		if strings.HasPrefix(key, sidecarPrefix) {
			continue
		}
		p, ok := parameters[key]
		if !ok {
			known := slices.DeleteFunc(slices.Sorted(maps.Keys(parameters)), func(k string) bool { return k == "fstype" })
			return c, fmt.Errorf("%w: %q is unknown: use %s", ErrParameter, key, strings.Join(known, ", "))
		}
		if !p.set(&c, storage[key]) {
			return c, fmt.Errorf("%w: %s is %q: use %s", ErrParameter, key, storage[key], p.values)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(mutable)) {
		return c, fmt.Errorf("%w: mutable parameter %q: volumes have no parameters that can be modified; remove it from the VolumeAttributesClass", ErrParameter, key)
	}
	return c, nil
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
