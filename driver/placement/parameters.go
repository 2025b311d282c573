package placement

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spdkgate/spdkgate/driver/volume"
)

// ErrParameter: a StorageClass's parameter is unknown, or has a value that means nothing.
var ErrParameter = errors.New("invalid StorageClass parameter")

// Parameters are a StorageClass's.
type Parameters struct {
	// FSType is ext4 or xfs, or empty.
	FSType string
	// Target and Store narrow down where volumes are made; anywhere when empty.
	Target, Store string
	Thick         bool
	Clear         volume.Clear
}

// parameters are all there are: what each sets, and the values it takes, for people.
var parameters = map[string]struct {
	values string
	set    func(*Parameters, string) bool
}{
	"fsType":  {"ext4 or xfs", setFSType},
	"fstype":  {"ext4 or xfs", setFSType},
	"target":  {"the name of a target in config.json", func(p *Parameters, v string) bool { p.Target = v; return v != "" }},
	"lvstore": {"the name of an lvstore", func(p *Parameters, v string) bool { p.Store = v; return v != "" }},
	"thin": {"true (the default) or false", func(p *Parameters, v string) bool {
		thin, err := strconv.ParseBool(v)
		p.Thick = !thin
		return err == nil
	}},
	"clearMethod": {"zeroes (the default), write_zeroes, or one that lets others read what deleted volumes held: unmap-may-expose-deleted-data, none-exposes-deleted-data", setClear},
}

func setFSType(p *Parameters, v string) bool {
	p.FSType = v
	return v == "ext4" || v == "xfs"
}

// setClear takes unmap, which was the default, for the default of now: unmap where that zeroes.
func setClear(p *Parameters, v string) bool {
	if v == "unmap" {
		v = string(volume.ClearZeroes)
	}
	p.Clear = volume.Clear(v)
	return slices.Contains([]volume.Clear{volume.ClearZeroes, volume.ClearWriteZeroes, volume.ClearUnmap, volume.ClearNone}, p.Clear)
}

// Kubernetes' sidecars add parameters under this prefix for their own use.
const sidecarPrefix = "csi.storage.k8s.io/"

// ParseParameters reads a StorageClass's parameters.
func ParseParameters(m map[string]string) (Parameters, error) {
	var p Parameters
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(key, sidecarPrefix) {
			continue
		}
		def, ok := parameters[key]
		if !ok {
			known := slices.DeleteFunc(slices.Sorted(maps.Keys(parameters)), func(k string) bool { return k == "fstype" })
			return p, fmt.Errorf("%w: %q is none: there are %s", ErrParameter, key, strings.Join(known, ", "))
		}
		if !def.set(&p, m[key]) {
			return p, fmt.Errorf("%w: %s is %q, it must be %s", ErrParameter, key, m[key], def.values)
		}
	}
	return p, nil
}
