package exports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A volume identifies a logical volume.
type volume struct {
	name, uuid string // name is LVSTORE/LVOL
	snapshot   bool
	claimed    bool
}

func (v volume) is(bdev string) bool { return bdev == v.uuid || bdev == v.name }

// A state is the part of the target's state on which a plan depends.
type state struct {
	volume     volume
	subsystems []spdkrpc.NVMfSubsystem // without the discovery subsystem
	discovery  []Portal
	// another way in which the volume is exposed, such as an iSCSI target; "" if the user can see
	// none
	offeredBy  string
	unread     []string        // kinds of other exports that the user is not permitted to read
	transports map[string]bool // nil if unknown
	keys       map[string]bool // nil if unknown
	may        permissions
}

// A target reads and changes exports.
type target struct{ rpc *spdkrpc.Client }

// unknowable reports whether a read failed because the user is not permitted to call the method, or
// because the target lacks it.
func unknowable(err error) bool {
	kind := spdkrpc.KindOf(err)
	return kind == spdkrpc.Denied || kind == spdkrpc.MethodNotFound
}

func (t target) volume(ctx context.Context, name string) (volume, error) {
	bdevs, err := t.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		return volume{}, &refusal{fmt.Sprintf("no volume %s is visible to this user: name it LVSTORE/LVOL or by its UUID", name), err}
	}
	if err != nil {
		return volume{}, fmt.Errorf("look for volume %s: %w", name, err)
	}
	if len(bdevs) != 1 || bdevs[0].DriverSpecific.Lvol == nil {
		return volume{}, refuse("%s is not a logical volume", name)
	}
	b := bdevs[0]
	v := volume{name: b.Name, uuid: b.UUID, claimed: b.Claimed, snapshot: b.DriverSpecific.Lvol.Snapshot != nil && *b.DriverSpecific.Lvol.Snapshot}
	if len(b.Aliases) > 0 {
		v.name = b.Aliases[0]
	}
	return v, nil
}

// subsystems returns all subsystems, and the addresses at which the target listens for discovery.
func (t target) subsystems(ctx context.Context) (subsystems []spdkrpc.NVMfSubsystem, discovery []Portal, err error) {
	all, err := t.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	if err != nil {
		return nil, nil, fmt.Errorf("list the exports: %w", err)
	}
	for _, s := range all {
		if s.Subtype != spdkrpc.NVMfSubsystemSubtypeDiscovery {
			subsystems = append(subsystems, s)
			continue
		}
		for _, a := range s.ListenAddresses {
			discovery = append(discovery, portalOf(a))
		}
	}
	return subsystems, discovery, nil
}

// read reads the state on which a plan to export a volume depends.
func (t target) read(ctx context.Context, r Request) (s state, err error) {
	if s.volume, err = t.volume(ctx, r.Volume); err != nil {
		return s, err
	}
	if s.may, err = t.permissions(ctx, r.Allowed); err != nil {
		return s, err
	}
	if s.subsystems, s.discovery, err = t.subsystems(ctx); err != nil {
		return s, err
	}
	if s.offeredBy, s.unread, err = t.offeredBy(ctx, s.volume, s.may); err != nil {
		return s, err
	}
	if s.transports, err = t.transports(ctx, s.may); err != nil {
		return s, err
	}
	s.keys, err = t.keyring(ctx, s.may)
	return s, err
}

// transports returns the target's transports, or nil if they are unknown.
func (t target) transports(ctx context.Context, may permissions) (map[string]bool, error) {
	if !may.succeed("nvmf_get_transports") {
		return nil, nil
	}
	transports, err := t.rpc.NVMfGetTransports(ctx, spdkrpc.NVMfGetTransportsParams{})
	switch {
	case unknowable(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the transports: %w", err)
	}
	found := map[string]bool{}
	for _, tr := range transports {
		found[strings.ToUpper(tr.Trtype)] = true
	}
	return found, nil
}

// keyring returns the keys in the target's keyring, or nil if they are unknown.
func (t target) keyring(ctx context.Context, may permissions) (map[string]bool, error) {
	if !may.succeed("keyring_get_keys") {
		return nil, nil
	}
	keys, err := t.rpc.KeyringGetKeys(ctx)
	switch {
	case unknowable(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	found := map[string]bool{}
	for _, k := range keys {
		found[k.Name] = !k.Removed
	}
	return found, nil
}

// exporting returns the subsystem that exports the volume, or nil if none does.
func exporting(subsystems []spdkrpc.NVMfSubsystem, v volume) *spdkrpc.NVMfSubsystem {
	i := slices.IndexFunc(subsystems, func(s spdkrpc.NVMfSubsystem) bool {
		return slices.ContainsFunc(s.Namespaces, func(n spdkrpc.NVMfNamespace) bool { return v.is(n.BdevName) })
	})
	if i < 0 {
		return nil
	}
	return &subsystems[i]
}

// reportsANA reports whether a subsystem with namespaces reports ANA.
func reportsANA(s *spdkrpc.NVMfSubsystem) bool {
	return !slices.ContainsFunc(s.Namespaces, func(n spdkrpc.NVMfNamespace) bool { return n.Anagrpid == nil })
}

func hostIn(s *spdkrpc.NVMfSubsystem, nqn string) *spdkrpc.NVMfSubsystemHost {
	i := slices.IndexFunc(s.Hosts, func(h spdkrpc.NVMfSubsystemHost) bool { return h.NQN == nqn })
	if i < 0 {
		return nil
	}
	return &s.Hosts[i]
}

func portalsOf(s *spdkrpc.NVMfSubsystem) (list []Portal) {
	for _, a := range s.ListenAddresses {
		list = append(list, portalOf(a))
	}
	return list
}

// checkNamed returns an error if the subsystem does not have the requested name, or if it also
// exports other volumes. It also returns an error for a subsystem of the CSI driver, unless the
// request names that subsystem.
func checkNamed(sub *spdkrpc.NVMfSubsystem, v volume, requested string) error {
	switch {
	case requested != "" && sub.NQN != requested:
		return refuse("volume %s is exported as %s, not as %s", v.name, sub.NQN, requested)
	case strings.HasPrefix(sub.NQN, driverPrefix) && requested == "":
		return refuse("volume %s is exported as %s, which is a name of the CSI driver: Kubernetes decides which hosts use such a volume. If the driver does not manage this volume, name the export (--nqn %s)", v.name, sub.NQN, sub.NQN)
	case len(sub.Namespaces) > 1:
		return refuse("%s exports %d bdevs, and its hosts reach all of them: change it with individual calls (spdk-proxy call)", sub.NQN, len(sub.Namespaces))
	}
	return nil
}
