package tenancy

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/tenancy/addresses"
	"github.com/spdkgate/spdkgate/proxy/tenancy/globs"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// validate returns all mistakes in the tenants' configuration, in particular objects that two
// tenants would own.
func validate(tenants []Tenant, ofUser map[string]string) error {
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	names := map[string]bool{}
	for _, t := range tenants {
		if t.Name == "" {
			complain("a tenant has no name")
		} else if !plain(t.Name) {
			complain("tenant %+q: the name has control characters or characters that change the direction of text: remove them", t.Name)
		}
		if names[t.Name] {
			complain("tenant %s is listed twice", t.Name)
		}
		names[t.Name] = true
		wrong = append(wrong, t.validate()...)
	}
	for _, user := range slices.Sorted(maps.Keys(ofUser)) {
		if tenant := ofUser[user]; !names[tenant] {
			complain("user %s belongs to tenant %q, which is not under tenants%s", user, tenant, didYouMean(tenant, names))
		}
	}
	for i, a := range tenants {
		for _, b := range tenants[i+1:] {
			wrong = append(wrong, disjoint(a, b)...)
		}
	}
	return errors.Join(wrong...)
}

func didYouMean(name string, names map[string]bool) string {
	if near := rpcschema.Nearest(name, slices.Sorted(maps.Keys(names))); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

func (t Tenant) validate() (wrong []error) {
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("tenant %s: "+format, append([]any{t.Name}, args...)...))
	}
	for _, lvs := range t.LVStores {
		if !plain(lvs) || strings.Contains(lvs, "/") || len(lvs) > 63 {
			complain("lvstores: a name must have 1 to 63 bytes and no slash, or volumes of different lvstores could not be distinguished")
		}
	}
	for _, glob := range t.Bdevs {
		if strings.Contains(glob, "/") {
			complain("bdevs: %s has a slash: volumes belong to the tenant of their lvstore, so list that under lvstores", glob)
		}
		if globs.Literal(glob) == "" {
			complain("bdevs: %s could match everything: begin with a prefix that only this tenant's names have", glob)
		}
	}
	for _, glob := range slices.Concat(t.Bdevs, t.Hosts) {
		if _, err := path.Match(glob, "x"); err != nil || !plain(glob) {
			complain("%q is not a valid glob: globs support * ? [a-z], and \\ before a literal character", glob)
		}
	}
	for _, kind := range t.Allow {
		if !slices.Contains(rpcschema.Openings, kind) && kind != AnySize {
			complain("allow: %q is unknown: the values are %s, %s", kind, AnySize, strings.Join(rpcschema.Openings, ", "))
		}
	}
	for key, list := range map[string][]string{"nqn_prefixes": t.NQNPrefixes, "iqn_prefixes": t.IQNPrefixes, "key_prefixes": t.KeyPrefixes} {
		for _, p := range list {
			if !plain(p) {
				complain("%s: a prefix is empty or has control characters", key)
			}
			if strings.HasPrefix(p, "/") || strings.HasPrefix(p, ":") {
				complain("%s: %s could be the path of a file: begin with a letter", key, p)
			}
			if begin := key[:3] + "."; key != "key_prefixes" && (!strings.HasPrefix(p, begin) || !strings.Contains(p, ":")) {
				complain("%s: %s must begin with %s and include the first colon, such as %s2016-06.io.spdk:team-a-", key, p, begin, begin)
			}
		}
	}
	if p := t.VolumeNQN; p != "" && (!plain(p) || !strings.HasPrefix(p, "nqn.") || !strings.HasSuffix(p, ":")) {
		complain("volume_nqn_prefix: it must begin with nqn. and end with a colon, such as nqn.2020-04.io.spdk.csi:uuid:")
	}
	for _, a := range t.Addresses {
		if _, err := addresses.Parse(a); err != nil {
			complain("addresses: %w", err)
		}
	}
	if min(t.Quota.Volumes, t.Quota.Subsystems, t.Quota.Hosts, t.Quota.Listeners, t.Quota.Keys) < 0 {
		complain("quota: limits must not be negative; 0 means no limit")
	}
	return wrong
}

// disjoint returns an error for each object that both tenants would own. Tenants may share hosts
// and addresses, which are not objects on the target.
func disjoint(a, b Tenant) (wrong []error) {
	complain := func(key, x, y string) {
		wrong = append(wrong, fmt.Errorf("tenants %s and %s overlap in %s: %s and %s", a.Name, b.Name, key, x, y))
	}
	pairs := func(xs, ys []string, overlap func(x, y string) bool, key string) {
		for _, x := range xs {
			for _, y := range ys {
				if overlap(x, y) {
					complain(key, x, y)
				}
			}
		}
	}
	prefixes := func(x, y string) bool { return strings.HasPrefix(x, y) || strings.HasPrefix(y, x) }
	// SPDK ignores letter case in iSCSI names.
	folded := func(x, y string) bool { return prefixes(strings.ToLower(x), strings.ToLower(y)) }
	pairs(a.LVStores, b.LVStores, func(x, y string) bool { return x == y }, "lvstores")
	pairs(a.Bdevs, b.Bdevs, globs.Overlap, "bdevs")
	pairs(a.NQNPrefixes, b.NQNPrefixes, prefixes, "nqn_prefixes")
	pairs(a.NQNPrefixes, oneOrNone(b.VolumeNQN), prefixes, "nqn_prefixes and volume_nqn_prefix")
	pairs(oneOrNone(a.VolumeNQN), b.NQNPrefixes, prefixes, "volume_nqn_prefix and nqn_prefixes")
	pairs(a.IQNPrefixes, b.IQNPrefixes, folded, "iqn_prefixes")
	pairs(a.KeyPrefixes, b.KeyPrefixes, prefixes, "key_prefixes")
	return wrong
}

// oneOrNone returns a list with one string, or nil if the string is empty.
func oneOrNone(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}
