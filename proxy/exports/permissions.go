package exports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// permissions describes which calls can succeed, according to the target and the proxy.
type permissions struct {
	allowed []string // as in Request
	present []string // names and aliases of the target's methods; nil if unknown

	tenants []*tenancy.Scope // tenants that the user may see
	own     *tenancy.Scope   // the user's tenant; nil if there is none or it is unknown
	used    tenancy.Usage    // what the user's tenant uses
	unread  string           // why the tenants are unknown; "" if they are known, or if there is no proxy
}

// tenantsMethod is the name of the proxy's method that reports tenants.
const tenantsMethod = "spdkgate_get_tenants"

// call reports whether the user may call a method, as far as this is known.
func (p *permissions) call(method string) bool {
	return p.allowed == nil || slices.Contains(p.allowed, method)
}

// has reports whether the target has a method, as far as this is known.
func (p *permissions) has(method string) bool {
	return p.present == nil || slices.Contains(p.present, method)
}

// succeed reports whether a call of the method can succeed.
func (p *permissions) succeed(method string) bool { return p.call(method) && p.has(method) }

// permissions reads the target's methods and the tenants' limits. It makes no call that the proxy
// would refuse.
func (t target) permissions(ctx context.Context, allowed []string) (permissions, error) {
	p := permissions{allowed: allowed}
	if p.call("rpc_get_methods") {
		present, err := t.rpc.RPCGetMethods(ctx, spdkrpc.RPCGetMethodsParams{IncludeAliases: new(true)})
		if err != nil && !unknowable(err) {
			return p, fmt.Errorf("list the target's methods: %w", err)
		}
		p.present = present
	}
	switch {
	case allowed == nil: // there is no proxy
		return p, nil
	case !p.call(tenantsMethod):
		p.unread = "this user must not call " + tenantsMethod
		return p, nil
	}
	reported, err := t.rpc.SpdkgateGetTenants(ctx, spdkrpc.SpdkgateGetTenantsParams{})
	if err != nil && !unknowable(err) {
		return p, fmt.Errorf("read the limits of tenants: %w", err)
	}
	if err == nil {
		err = p.setTenants(reported)
	}
	if err != nil {
		p.unread = err.Error()
	}
	return p, nil
}

// setTenants stores the tenants that the proxy has reported.
func (p *permissions) setTenants(reported []spdkrpc.ProxyTenant) error {
	amount := func(n *uint64) uint64 {
		if n == nil {
			return 0
		}
		return *n
	}
	var list []tenancy.Tenant
	named := map[string]string{} // one user for each tenant, with the tenant's name
	for _, r := range reported {
		q := r.Quota
		t := tenancy.Tenant{
			Name: r.Name, LVStores: r.Lvstores, Bdevs: r.Bdevs, NQNPrefixes: r.NQNPrefixes, IQNPrefixes: r.IQNPrefixes, KeyPrefixes: r.KeyPrefixes,
			Addresses: r.Addresses, Hosts: r.Hosts, Allow: r.Allow,
			Quota: tenancy.Quota{
				Bytes: amount(q.Bytes), Volumes: int(amount(q.Volumes)), Subsystems: int(amount(q.Subsystems)),
				Hosts: int(amount(q.Hosts)), Listeners: int(amount(q.Listeners)), Keys: int(amount(q.Keys)),
			},
		}
		if r.VolumeNQNPrefix != nil {
			t.VolumeNQN = *r.VolumeNQNPrefix
		}
		list, named[r.Name] = append(list, t), r.Name
	}
	all, err := tenancy.New(list, named, rpcschema.Default(), nil)
	if err != nil {
		return fmt.Errorf("this program does not understand the proxy's tenants: %w", err)
	}
	p.tenants = all.Scopes()
	for _, r := range reported {
		if u := r.Used; r.Own {
			p.own = all.Of(r.Name)
			p.used = tenancy.Usage{Bytes: amount(u.Bytes), Volumes: amount(u.Volumes), Subsystems: amount(u.Subsystems), Hosts: amount(u.Hosts), Listeners: amount(u.Listeners)}
		}
	}
	return nil
}

// newNQN returns the NQN for a new export of a volume. If the user's tenant determines a prefix,
// the NQN begins with it. If the tenant may choose from several, newNQN returns the NQN for users
// without a tenant, and check returns the error that lists them.
func (p *permissions) newNQN(v volume) (string, error) {
	own, nqn := p.own, rpcschema.UUIDPrefix+v.uuid
	switch {
	case own == nil:
	case own.VolumeNQN != "" && own.VolumeNQN != driverPrefix:
		nqn = own.VolumeNQN + v.uuid
	case len(own.NQNPrefixes) == 1:
		nqn = own.NQNPrefixes[0] + v.uuid
	case len(own.NQNPrefixes) == 0 && own.VolumeNQN == driverPrefix:
		return "", refuse("tenant %s can export volume %s only as %s%s, which is a name of the CSI driver's exports: if Kubernetes has no PersistentVolume for the volume, repeat this with --nqn %[3]s", own.Name, v.name, driverPrefix, v.uuid)
	}
	return nqn, nil
}

// foreign reports whether an address is reserved for tenants that do not own the volume.
func (p *permissions) foreign(at Portal, v volume) bool {
	found := false
	for _, s := range p.tenants {
		if !s.AllowsAddress(at.Addr, at.Port) {
			continue
		}
		if s.Owns("bdev", v.name) {
			return false
		}
		found = true
	}
	return found
}

// check returns the error with which the proxy would refuse one of the plan's calls, as far as this
// is known in advance. It uses the functions with which the proxy itself decides.
func (p *permissions) check(steps []Step) error {
	var made []*rpcschema.Method
	for _, s := range steps {
		m, err := rpcschema.Default().Find(s.Method, rpcschema.Release{})
		if err != nil {
			return err
		}
		made = append(made, m)
		if err := p.checkCall(m, s.Shown); err != nil {
			return err
		}
	}
	if p.own == nil {
		return nil
	}
	var over *tenancy.QuotaError
	if errors.As(p.own.CheckQuota(made, p.used), &over) {
		method := map[string]string{"hosts": "nvmf_subsystem_add_host", "listeners": "nvmf_subsystem_add_listener"}[over.What]
		if method == "" {
			method = "nvmf_create_subsystem"
		}
		return predicted(&spdkrpc.Error{Method: method, Kind: spdkrpc.NoSpace, Code: -int(syscall.ENOSPC), Message: over.Error()})
	}
	return nil
}

// checkCall checks a single call, like check.
func (p *permissions) checkCall(m *rpcschema.Method, params any) error {
	denied := func(format string, args ...any) error {
		return predicted(&spdkrpc.Error{Method: m.Name, Kind: spdkrpc.Denied, Code: jsonrpc.CodeForbidden, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case p.own != nil && !p.own.MayCall(m.Name): // see below
	case !p.call(m.Name) && m.ServedBy == rpcschema.ServedByProxy:
		return denied("this user may not make this call: ask the administrator of this proxy for a role that allows it, and for the configuration that enables it (spdk-proxy schema show %s)", m.Name)
	case !p.call(m.Name):
		return denied("this user may not make this call: ask the administrator of this proxy for a role that allows it")
	case p.own == nil:
		return nil
	}
	text, err := jsonrpc.Marshal(params)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	value, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	object, _ := value.(map[string]any)
	var refusal *tenancy.Refusal
	if errors.As(p.own.AdmitOffline(m, object), &refusal) {
		return denied("this user may not make this call: %s", refusal.Reason)
	}
	return nil
}

// predicted converts an error that the proxy would return to a refusal.
func predicted(e *spdkrpc.Error) error { return &refusal{e.Error(), e} }
