package exports

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Step is one call of a plan.
type Step struct {
	Method string
	Shown  any // the parameters without secrets

	do func(ctx context.Context) error
	// if not nil, called after the step; if it fails, the step is undone
	check func(ctx context.Context) error
	undo  *Step // nil if there is nothing to undo, or if another step's undo includes it
	stays bool  // the step remains in effect if a later step fails
}

// String returns the call in readable form.
func (s Step) String() string {
	text, err := json.Marshal(s.Shown)
	if err != nil {
		return s.Method
	}
	return s.Method + " " + string(text)
}

// A Plan contains the calls that create or withdraw an export. If there is nothing to do, it has no
// steps.
type Plan struct {
	Volume   string // LVSTORE/LVOL
	NQN      string
	Steps    []Step
	Warnings []string // consequences that a person must know before the calls are made

	volume  volume
	portals []Portal // addresses at which hosts connect
	hosts   []string // hosts in the request
	anyHost bool
	key     bool   // whether the hosts must authenticate
	unread  string // why it cannot be predicted which calls the proxy refuses
}

// PlanExport plans an export. It changes nothing on the target. If the request must not be
// executed, the error wraps ErrInvalid or ErrRefused. If PlanExport knows that the proxy would
// refuse a call, the error also wraps the *spdkrpc.Error that the call would return.
func PlanExport(ctx context.Context, rpc *spdkrpc.Client, r Request) (*Plan, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	r.Hosts = distinct(r.Hosts)
	t := target{rpc}
	if r.Key != nil {
		release, err := rpc.Release(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the target's release: %w", err)
		}
		if !release.Has(rpcschema.ChangesHostKeys) {
			return nil, refuse("SPDK %s does not authenticate hosts: upgrade it to %s or later, or export the volume without a key", release, rpcschema.ChangesHostKeys.Since())
		}
	}
	s, err := t.read(ctx, r)
	if err != nil {
		return nil, err
	}
	p, err := t.plan(r, s)
	if err != nil {
		return nil, err
	}
	if err := s.may.check(p.Steps); err != nil {
		return nil, err
	}
	p.unread = s.may.unread
	return p, nil
}

func (t target) plan(r Request, s state) (*Plan, error) {
	v := s.volume
	if s.offeredBy != "" {
		return nil, refuse("%s offers volume %s already: the users of both would overwrite each other's data", s.offeredBy, v.name)
	}
	sub := exporting(s.subsystems, v)
	p := &Plan{Volume: v.name, NQN: r.nqn(v.uuid), volume: v, hosts: r.Hosts, anyHost: r.AnyHost, key: r.Key != nil}
	if sub == nil {
		if r.NQN == "" {
			var err error
			if p.NQN, err = s.may.newNQN(v); err != nil {
				return nil, err
			}
		}
		return p, t.planNew(p, r, s)
	}
	requested := r.NQN
	if requested != "" {
		requested = r.nqn(v.uuid)
	}
	if err := checkNamed(sub, v, requested); err != nil {
		return nil, err
	}
	p.NQN = sub.NQN
	return p, t.planChange(p, r, s, sub)
}

// planNew adds the steps for a new export. The listeners come last, so that no host can connect to
// an incomplete export.
func (t target) planNew(p *Plan, r Request, s state) error {
	v := s.volume
	leftover := false
	for i := range s.subsystems {
		switch other := &s.subsystems[i]; {
		case other.NQN != p.NQN:
		case isLeftover(other, r, v):
			leftover = true
		default:
			return refuse("there is a subsystem %s that does not export volume %s: choose another name (--nqn), or delete it (spdk-proxy call nvmf_delete_subsystem nqn=%s)", p.NQN, v.name, p.NQN)
		}
	}
	if v.claimed {
		return refuse("volume %s is in use (claimed) by another bdev of the target, or by an export that this user must not see", v.name)
	}
	if err := p.listenAt(r, s, nil); err != nil {
		return err
	}
	if err := t.keys(p, r, s); err != nil {
		return err
	}
	for _, transport := range p.newTransports(s) {
		params := spdkrpc.NVMfCreateTransportParams{Trtype: transport}
		p.add("nvmf_create_transport", params, func(ctx context.Context) error { return t.rpc.NVMfCreateTransport(ctx, params) }, nil)
		p.last().stays = true // SPDK cannot delete a transport
	}
	if leftover {
		p.Steps = append(p.Steps, *t.deletion(p.NQN))
		p.last().stays = true
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s exists without namespaces, hosts and listeners, as an interrupted export leaves it. It is deleted first", p.NQN))
	}
	create := spdkrpc.NVMfCreateSubsystemParams{
		NQN: p.NQN, SerialNumber: new(r.serial(v.uuid)), MaxNamespaces: new(uint32(1)), AllowAnyHost: &r.AnyHost,
		ANAReporting: new(true), // lets the proxy freeze the volume for snapshots
	}
	p.add("nvmf_create_subsystem", create, func(ctx context.Context) error { return t.rpc.NVMfCreateSubsystem(ctx, create) }, t.ownDeletion(p.NQN, r, v))
	ns := spdkrpc.NVMfSubsystemAddNSParams{NQN: p.NQN, Namespace: spdkrpc.NVMfNamespaceParams{
		BdevName: v.uuid, NSID: new(uint32(1)), UUID: &v.uuid, NGUID: new(strings.ReplaceAll(v.uuid, "-", "")),
	}}
	p.add("nvmf_subsystem_add_ns", ns, func(ctx context.Context) error { _, err := t.rpc.NVMfSubsystemAddNS(ctx, ns); return err }, nil)
	// If another user has admitted a host, undoing the plan does not delete the subsystem, so it
	// must remove this plan's hosts.
	t.admit(p, r, r.Hosts)
	for _, at := range p.portals {
		t.listen(p, at)
		p.last().undo = nil // deleting the subsystem undoes this step
	}
	p.warn(r, s, len(r.Hosts))
	return nil
}

// isLeftover reports whether a subsystem with the NQN of a new export was left behind by an
// interrupted export of the same volume, without a namespace.
func isLeftover(sub *spdkrpc.NVMfSubsystem, r Request, v volume) bool {
	return strings.HasSuffix(sub.NQN, v.uuid) && sub.SerialNumber != nil && *sub.SerialNumber == r.serial(v.uuid) &&
		len(sub.Namespaces)+len(sub.Hosts)+len(sub.ListenAddresses) == 0
}

// ownDeletion returns the step that deletes a subsystem created by this plan, unless another user
// has changed it.
func (t target) ownDeletion(nqn string, r Request, v volume) *Step {
	s := t.deletion(nqn)
	remove := s.do
	s.do = func(ctx context.Context) error {
		now, err := t.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
		if err != nil {
			return err
		}
		for _, sub := range now {
			foreign := slices.ContainsFunc(sub.Namespaces, func(n spdkrpc.NVMfNamespace) bool { return !v.is(n.BdevName) }) ||
				slices.ContainsFunc(sub.Hosts, func(h spdkrpc.NVMfSubsystemHost) bool { return !slices.Contains(r.Hosts, h.NQN) })
			if foreign {
				return fmt.Errorf("another user has changed %s in the meantime: delete it if it is no longer needed", nqn)
			}
		}
		return remove(ctx)
	}
	return s
}

// planChange adds the steps that bring an existing export into the requested state.
func (t target) planChange(p *Plan, r Request, s state, sub *spdkrpc.NVMfSubsystem) error {
	v := s.volume
	if !reportsANA(sub) {
		return refuse("%s exports volume %s without ANA reporting, which SPDK cannot add: no snapshot would be possible while a host is connected. Withdraw the export (spdk-proxy unexport %s), then export the volume again", sub.NQN, v.name, v.name)
	}
	if r.Serial != "" && (sub.SerialNumber == nil || *sub.SerialNumber != r.Serial) {
		return refuse("%s has a different serial number, which cannot be changed: withdraw the export (spdk-proxy unexport %s), then export the volume again", sub.NQN, v.name)
	}
	if sub.AllowAnyHost && !r.AnyHost {
		return refuse("%s admits every host, so naming hosts would exclude no other host: withdraw the export (spdk-proxy unexport %s), then export the volume again", sub.NQN, v.name)
	}
	var missing []string
	for _, h := range r.Hosts {
		now := hostIn(sub, h)
		switch {
		case now == nil:
			missing = append(missing, h)
			continue
		case r.Key != nil && (now.DHCHAPKey == nil || *now.DHCHAPKey != r.Key.Name), r.CtrlrKey != nil && (now.DHCHAPCtrlrKey == nil || *now.DHCHAPCtrlrKey != r.CtrlrKey.Name):
			return refuse("host %s is admitted to %s with different keys or without keys: withdraw it (spdk-proxy unexport %s --host %s), then export the volume to it again", h, sub.NQN, v.name, h)
		}
		p.key = p.key || now.DHCHAPKey != nil
	}
	others := slices.DeleteFunc(slices.Clone(sub.Hosts), func(h spdkrpc.NVMfSubsystemHost) bool { return slices.Contains(r.Hosts, h.NQN) })
	if (len(missing) > 0 || r.AnyHost && !sub.AllowAnyHost) && len(others) > 0 && !r.Shared {
		return refuse("volume %s is exported to host %s: two hosts that write at the same time destroy any file system except a cluster file system. Withdraw that host (spdk-proxy unexport %s --host %s), or share the volume (--shared)",
			v.name, others[0].NQN, v.name, others[0].NQN)
	}
	if err := p.listenAt(r, s, sub); err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := t.keys(p, r, s); err != nil {
			return err
		}
	}
	t.admit(p, r, missing)
	if r.AnyHost && !sub.AllowAnyHost {
		open := spdkrpc.NVMfSubsystemAllowAnyHostParams{NQN: p.NQN, AllowAnyHost: true}
		shut := spdkrpc.NVMfSubsystemAllowAnyHostParams{NQN: p.NQN, AllowAnyHost: false}
		p.add("nvmf_subsystem_allow_any_host", open, func(ctx context.Context) error { return t.rpc.NVMfSubsystemAllowAnyHost(ctx, open) },
			&Step{Method: "nvmf_subsystem_allow_any_host", Shown: shut, do: func(ctx context.Context) error { return t.rpc.NVMfSubsystemAllowAnyHost(ctx, shut) }})
	}
	there := portalsOf(sub)
	for _, at := range p.portals {
		if !slices.Contains(there, at) {
			if s.transports != nil && !s.transports[at.Transport] {
				return refuse("the target has no transport %s: create it first (spdk-proxy call nvmf_create_transport trtype=%s)", at.Transport, at.Transport)
			}
			t.listen(p, at)
		}
	}
	p.warn(r, s, len(others)+len(r.Hosts))
	return nil
}

// listenAt determines the addresses at which hosts connect.
func (p *Plan) listenAt(r Request, s state, sub *spdkrpc.NVMfSubsystem) error {
	add := func(list []Portal) {
		for _, at := range list {
			if !slices.Contains(p.portals, at) && (at.Transport == "TCP" || at.Transport == "RDMA") {
				p.portals = append(p.portals, at)
			}
		}
	}
	if sub != nil {
		add(portalsOf(sub))
	}
	add(r.Listen)
	switch {
	case len(p.portals) > 0:
		return nil
	case r.AnyHost:
		return refuse("name an address (--listen): if any host may connect, only the network of the address limits who reaches the volume")
	}
	var all []Portal
	for i := range s.subsystems {
		all = append(all, portalsOf(&s.subsystems[i])...)
	}
	all = append(all, s.discovery...)
	add(slices.DeleteFunc(slices.Clone(all), func(at Portal) bool { return s.may.foreign(at, s.volume) }))
	switch {
	case len(p.portals) == 0 && len(all) > 0:
		return refuse("the target listens only at addresses of tenants to which volume %s does not belong: name an address of the storage server (--listen ADDRESS:4420)", s.volume.name)
	case len(p.portals) == 0:
		if own := s.may.own; own != nil && len(own.Addresses) > 0 {
			return refuse("this user sees no address at which the target listens: name an address of tenant %s (--listen): %s", own.Name, strings.Join(own.Addresses, ", "))
		}
		return refuse("this user sees no address at which the target listens: name an address of the storage server (--listen ADDRESS:4420)")
	}
	return nil
}

func (p *Plan) newTransports(s state) (list []string) {
	for _, at := range p.portals {
		if s.transports != nil && !s.transports[at.Transport] && !slices.Contains(list, at.Transport) {
			list = append(list, at.Transport)
		}
	}
	return list
}

// keys adds the steps that add the keys to the keyring.
func (t target) keys(p *Plan, r Request, s state) error {
	for _, k := range []*Key{r.Key, r.CtrlrKey} {
		switch {
		case k == nil:
			continue
		case k.Secret == "" && s.keys != nil && !s.keys[k.Name]:
			return refuse("there is no key %s in the target's keyring: add it by naming a file with its secret (%s=@FILE)", k.Name, k.Name)
		case k.Secret == "":
			continue
		}
		// Do not undo the addition of a key that already exists: the proxy accepts the call only if
		// the secret is the same.
		var undo *Step
		if s.keys != nil && !s.keys[k.Name] {
			remove := spdkrpc.SpdkgateKeyRemoveParams{Name: k.Name}
			undo = &Step{Method: "spdkgate_key_remove", Shown: remove, do: func(ctx context.Context) error { return t.rpc.SpdkgateKeyRemove(ctx, remove) }}
		}
		add := spdkrpc.SpdkgateKeyAddParams{Name: k.Name, Secret: k.Secret}
		p.add("spdkgate_key_add", map[string]string{"name": k.Name, "secret": "[redacted]"}, func(ctx context.Context) error { return t.rpc.SpdkgateKeyAdd(ctx, add) }, undo)
	}
	return nil
}

// admit adds the steps that admit hosts.
func (t target) admit(p *Plan, r Request, hosts []string) {
	for _, host := range hosts {
		params := spdkrpc.NVMfSubsystemAddHostParams{NQN: p.NQN, Host: host}
		if r.Key != nil {
			params.DHCHAPKey = &r.Key.Name
		}
		if r.CtrlrKey != nil {
			params.DHCHAPCtrlrKey = &r.CtrlrKey.Name
		}
		p.add("nvmf_subsystem_add_host", params, func(ctx context.Context) error { return t.rpc.NVMfSubsystemAddHost(ctx, params) }, t.ownRemoval(p.NQN, host))
	}
	if len(hosts) > 0 {
		t.checkExclusive(p, r)
	}
}

func (t target) listen(p *Plan, at Portal) {
	add := spdkrpc.NVMfSubsystemAddListenerParams{NQN: p.NQN, ListenAddress: at.address()}
	remove := spdkrpc.NVMfSubsystemRemoveListenerParams{NQN: p.NQN, ListenAddress: at.address()}
	start := func(ctx context.Context) error {
		err := t.rpc.NVMfSubsystemAddListener(ctx, add)
		if spdkrpc.KindOf(err) == spdkrpc.InvalidParams {
			return fmt.Errorf("listen at %s, which must be an address of the storage server with a free port: %w", at, err)
		}
		return err
	}
	p.add("nvmf_subsystem_add_listener", add, start,
		&Step{Method: "nvmf_subsystem_remove_listener", Shown: remove, do: func(ctx context.Context) error { return t.rpc.NVMfSubsystemRemoveListener(ctx, remove) }})
}

func (t target) removal(nqn, host string) *Step {
	params := spdkrpc.NVMfSubsystemRemoveHostParams{NQN: nqn, Host: host}
	return &Step{Method: "nvmf_subsystem_remove_host", Shown: params, do: func(ctx context.Context) error { return t.rpc.NVMfSubsystemRemoveHost(ctx, params) }}
}

func (t target) deletion(nqn string) *Step {
	params := spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn}
	return &Step{Method: "nvmf_delete_subsystem", Shown: params, do: func(ctx context.Context) error { return t.rpc.NVMfDeleteSubsystem(ctx, params) }}
}

func (p *Plan) add(method string, shown any, do func(context.Context) error, undo *Step) {
	p.Steps = append(p.Steps, Step{Method: method, Shown: shown, do: do, undo: undo})
}

// last returns the last step.
func (p *Plan) last() *Step { return &p.Steps[len(p.Steps)-1] }

// warn adds warnings about the consequences of an export.
func (p *Plan) warn(r Request, s state, hosts int) {
	p.warnDriver()
	if len(s.unread) > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("this user must not read other exports (%s): make sure that none of them offers the volume, because two users would overwrite each other's data", strings.Join(s.unread, ", ")))
	}
	if r.AnyHost {
		var at []string
		for _, portal := range p.portals {
			at = append(at, portal.String())
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("any host that reaches %s can connect, and read and overwrite the volume: only the network keeps other hosts away", strings.Join(at, ", ")))
	}
	if hosts > 1 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d hosts are admitted: two hosts that write at the same time destroy any file system except a cluster file system", hosts))
	}
	if s.volume.snapshot {
		p.Warnings = append(p.Warnings, "the volume is a snapshot: hosts can only read it")
	}
}

// warnDriver adds a warning if the export has a name that the CSI driver uses.
func (p *Plan) warnDriver() {
	if strings.HasPrefix(p.NQN, driverPrefix) {
		p.Warnings = append(p.Warnings, p.NQN+" is a name of the CSI driver's exports: if Kubernetes has a PersistentVolume for this volume, the driver changes the export, too")
	}
}
