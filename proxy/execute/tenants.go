package execute

import (
	"context"
	"encoding/json"

	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// ListTenants serves spdkgate_get_tenants. A tenant's users see only their own tenant.
func (e *Executor) ListTenants(ctx context.Context, c Command, all *tenancy.Tenancy) (json.RawMessage, error) {
	scopes := all.Scopes()
	if c.Tenant != nil {
		scopes = []*tenancy.Scope{c.Tenant}
	}
	if wanted, named := c.Params["tenant"].(string); named {
		var found []*tenancy.Scope
		for _, s := range scopes {
			if s.Name == wanted {
				found = append(found, s)
			}
		}
		if scopes = found; scopes == nil {
			return nil, &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.NoSuchDevice, Code: -2, Message: "No such tenant"}
		}
	}
	used, err := e.TenantUsage(ctx, c.Ask, all, scopes)
	if err != nil {
		return nil, err
	}
	list := make([]spdkrpc.ProxyTenant, len(scopes))
	for i, s := range scopes {
		list[i] = spdkrpc.ProxyTenant{
			Name: s.Name, Own: s == c.Tenant, Quota: e.QuotaOf(s), Used: used[i],
			Lvstores: listed(s.LVStores), Bdevs: listed(s.Bdevs), NQNPrefixes: listed(s.NQNPrefixes), IQNPrefixes: listed(s.IQNPrefixes), KeyPrefixes: listed(s.KeyPrefixes),
			Addresses: listed(s.Addresses), Hosts: listed(s.Hosts), Allow: listed(s.Allow),
		}
		if s.VolumeNQN != "" {
			list[i].VolumeNQNPrefix = &s.VolumeNQN
		}
	}
	return json.Marshal(list)
}

// TenantUsage returns how much of its quota each tenant uses, in the order of the tenants.
func (e *Executor) TenantUsage(ctx context.Context, ask tenancy.Ask, all *tenancy.Tenancy, scopes []*tenancy.Scope) ([]spdkrpc.ProxyTenantAmounts, error) {
	used, err := all.Usage(ctx, ask, scopes...)
	if err != nil {
		return nil, err
	}
	list := make([]spdkrpc.ProxyTenantAmounts, len(used))
	for i, u := range used {
		list[i] = spdkrpc.ProxyTenantAmounts{Bytes: &u.Bytes, Volumes: &u.Volumes, Subsystems: &u.Subsystems, Hosts: &u.Hosts, Listeners: &u.Listeners}
		if e.StoresKeys() {
			n, err := e.restart.keys.Used(sharedBy(scopes[i]))
			if err != nil {
				return nil, err
			}
			list[i].Keys = new(uint64(n))
		}
	}
	return list, nil
}

// QuotaOf returns a tenant's quota. It omits amounts without a limit.
func (e *Executor) QuotaOf(s *tenancy.Scope) (a spdkrpc.ProxyTenantAmounts) {
	q := s.Quota
	for _, b := range []struct {
		into **uint64
		most int
	}{{&a.Volumes, q.Volumes}, {&a.Subsystems, q.Subsystems}, {&a.Hosts, q.Hosts}, {&a.Listeners, q.Listeners}, {&a.Keys, q.Keys}} {
		if b.most > 0 && (b.into != &a.Keys || e.StoresKeys()) {
			*b.into = new(uint64(b.most))
		}
	}
	if q.Bytes > 0 {
		a.Bytes = &q.Bytes
	}
	return a
}

// sharedBy returns a tenant's key quota.
func sharedBy(s *tenancy.Scope) keys.Share {
	return keys.Share{Most: s.Quota.Keys, Has: func(name string) bool { return s.Owns("key", name) }}
}

// listed returns a copy of list. In JSON, an empty copy becomes [] rather than null.
func listed(list []string) []string { return append([]string{}, list...) }
