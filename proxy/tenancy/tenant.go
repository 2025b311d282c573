package tenancy

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/proxy/tenancy/addresses"
	"github.com/spdkgate/spdkgate/proxy/tenancy/globs"
	"github.com/spdkgate/spdkgate/proxy/tenancy/owners"
	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// A Tenant describes a tenant's objects and limits.
type Tenant struct {
	Name        string
	LVStores    []string // names of lvstores; all volumes in them belong to the tenant
	Bdevs       []string // globs (* ? [a-z]) over names of other bdevs
	NQNPrefixes []string // prefixes of NQNs of subsystems
	VolumeNQN   string   // a subsystem named with this prefix and a volume's UUID belongs to the volume's tenant
	IQNPrefixes []string // prefixes of names of iSCSI targets
	KeyPrefixes []string // prefixes of names of keys in the target's keyring
	Addresses   []string // addresses to listen at: IP:PORT, or IP for all ports of that address
	Hosts       []string // globs over NQNs of hosts that may be admitted
	Allow       []string // kinds of access permitted to other clients (rpcschema.Openings)
	Quota       Quota
}

// A Quota limits a tenant's usage. 0 means no limit.
type Quota struct {
	Bytes      uint64 // provisioned: full sizes of all volumes and snapshots, even if they are thin
	Volumes    int    // volumes and snapshots
	Subsystems int    // NVMe-oF subsystems and iSCSI targets
	Hosts      int    // hosts admitted to all subsystems together
	Listeners  int    // listeners of all subsystems together
	Keys       int    // keys stored through the proxy, as package keys counts them
}

// Ask makes one of the proxy's own calls to the target.
type Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)

// A Tenancy contains all tenants. It is safe for concurrent use.
type Tenancy struct {
	schema    *rpcschema.Document
	plans     *plan.Plans       // nil if there are no tenants
	scopes    map[string]*Scope // by the tenant's name
	ofUser    map[string]*Scope
	byLVStore map[string]*Scope
	stores    *stores
	volumes   *volumes
	owners    *owners.File
}

// A Scope determines what one tenant may see and change. A nil Scope belongs to a user without a
// tenant, who sees everything.
type Scope struct {
	Tenant
	tenancy   *Tenancy
	addresses []addresses.Address
	volumes   *account      // account of bytes and volumes
	exports   *account      // account of subsystems, hosts and listeners
	counting  chan struct{} // contains an element while Usage counts
}

// New returns a Tenancy. ofUser maps users to their tenants, and omits users without a tenant. If
// former is not nil, it must be a Tenancy for the same target; New reuses its caches and counts.
// The error joins all mistakes in the configuration.
func New(tenants []Tenant, ofUser map[string]string, schema *rpcschema.Document, former *Tenancy) (*Tenancy, error) {
	t := &Tenancy{
		schema: schema, scopes: map[string]*Scope{}, ofUser: map[string]*Scope{},
		byLVStore: map[string]*Scope{}, stores: &stores{}, volumes: &volumes{},
	}
	if former != nil {
		t.stores, t.volumes, t.owners = former.stores, former.volumes, former.owners
	}
	if err := validate(tenants, ofUser); err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		s := &Scope{Tenant: tenant, tenancy: t, volumes: newAccount(), exports: newAccount(), counting: make(chan struct{}, 1)}
		for _, a := range tenant.Addresses {
			parsed, err := addresses.Parse(a)
			if err != nil {
				return nil, err
			}
			s.addresses = append(s.addresses, parsed)
		}
		if former != nil && former.scopes[tenant.Name] != nil {
			s.volumes, s.exports = former.scopes[tenant.Name].volumes, former.scopes[tenant.Name].exports
			if !reflect.DeepEqual(tenant, former.scopes[tenant.Name].Tenant) {
				// the count is outdated: other objects may now belong to the tenant, or may now be
				// counted
				s.volumes.forgetCount()
				s.exports.forgetCount()
			}
		}
		s.exports.remember(t.owners, tenant.Name)
		t.scopes[tenant.Name] = s
		for _, lvs := range tenant.LVStores {
			t.byLVStore[lvs] = s
		}
	}
	for user, name := range ofUser {
		t.ofUser[user] = t.scopes[name]
	}
	if len(tenants) > 0 {
		t.plans = plan.New(schema)
	}
	return t, nil
}

// Remember makes the Tenancy record the owners of subsystems in f, and loads the owners that f
// already lists. It must be called before the first call.
func (t *Tenancy) Remember(f *owners.File) {
	t.owners = f
	for name, s := range t.scopes {
		s.exports.remember(f, name)
	}
}

// Of returns a user's scope, or nil if the user has no tenant.
func (t *Tenancy) Of(user string) *Scope { return t.ofUser[user] }

// ownsNamed reports whether a name belongs to the tenant, based on the name alone.
func (s *Scope) ownsNamed(kind, name string) bool {
	if !plain(name) {
		return false
	}
	switch kind {
	case "lvstore":
		return s.tenancy.byLVStore[name] == s
	case "bdev":
		// A volume's alias is LVSTORE/LVOL, and the names of tenants' lvstores contain no slash.
		if lvs, lvol, ok := strings.Cut(name, "/"); ok {
			return lvol != "" && !strings.Contains(lvol, "/") && s.tenancy.byLVStore[lvs] == s
		}
		return globs.MatchesAny(s.Bdevs, name)
	case "nqn":
		return hasPrefix(s.NQNPrefixes, name)
	case "iqn":
		return hasPrefix(s.IQNPrefixes, name)
	case "key":
		return hasPrefix(s.KeyPrefixes, name)
	case "host-nqn":
		return globs.MatchesAny(s.Hosts, name)
	}
	return false
}

// ownsAddress reports whether an address in a call belongs to the tenant.
func (s *Scope) ownsAddress(v any) bool {
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	var a addresses.Parts
	for name, member := range object {
		value, ok := member.(string)
		if !ok || !a.Set(name, value) {
			return false
		}
	}
	return a.In(s.addresses)
}

// plain reports whether a name is not empty and contains no unsafe characters, which could end the
// name early in C, control a terminal, or change the direction of text.
func plain(name string) bool {
	return name != "" && printable.Valid(name)
}

func hasPrefix(prefixes []string, name string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// now is the clock. Tests replace it.
var now = time.Now
