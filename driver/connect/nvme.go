package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// nvme attaches NVMe over Fabrics namespaces through the kernel's interface, as nvme-cli does. A
// write to /dev/nvme-fabrics creates a controller, and a write to the controller's attribute
// delete_controller removes it. nvme reads all information about controllers from sysfs.
type nvme struct {
	node             *node
	host             Host
	options          NVMeOptions
	exec             utilexec.Interface
	log              *slog.Logger
	view             sharedView
	namespaceTimeout time.Duration // zero means namespaceWait
}

// namespaceWait limits how long a call waits for a live controller's namespace. The target adds the
// namespace before this node connects, so a few seconds are enough.
const namespaceWait = 10 * time.Second

func (n *nvme) namespaceLimit() time.Duration { return cmp.Or(n.namespaceTimeout, namespaceWait) }

func (n *nvme) connect(ctx context.Context, e Export, step *operation.Step) (Device, error) {
	made, err := n.ensureControllers(ctx, e, step)
	if err != nil {
		return Device{}, err
	}
	d, err := n.waitForDevice(ctx, e, step)
	if err != nil && made {
		err = errors.Join(err, n.undo(ctx, e, step))
	}
	return d, err
}

// ensureControllers creates a controller for each address of the export that has none yet, if the
// kernel has native multipath. Otherwise it creates one controller, for the first address that
// works, because two controllers would be two block devices. ensureControllers succeeds if at least
// one address has a controller.
func (n *nvme) ensureControllers(ctx context.Context, e Export, step *operation.Step) (made bool, err error) {
	paths := e.paths()
	if len(paths) == 1 {
		return n.ensureController(ctx, e, step)
	}
	all := n.nativeMultipath()
	if !all {
		if i := slices.IndexFunc(paths, func(p Export) bool { return n.connected(ctx, p) }); i >= 0 {
			paths = paths[i : i+1]
		}
	}
	var failures []error
	for _, p := range paths {
		madeHere, err := n.ensureController(ctx, p, step)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", p.portal(), err))
			continue
		}
		made = made || madeHere
		if !all {
			break
		}
	}
	if len(failures) == len(paths) {
		return false, errors.Join(failures...)
	}
	for _, err := range failures {
		n.log.Warn("no connection to one of the target's addresses; continuing with the others", "nqn", e.NQN, "error", err)
	}
	return made, nil
}

// connected reports whether there is a usable controller for the export's address.
func (n *nvme) connected(ctx context.Context, e Export) bool {
	address, err := resolve(ctx, e.Address)
	if err != nil {
		return false
	}
	existing, err := n.controllersAt(e, address)
	return err == nil && slices.ContainsFunc(existing, controller.usable)
}

// ensureController creates a controller for the target's address if there is none.
func (n *nvme) ensureController(ctx context.Context, e Export, step *operation.Step) (made bool, err error) {
	step.Doing("resolving the target's address")
	address, err := resolve(ctx, e.Address)
	if err != nil {
		return false, err
	}
	for {
		existing, err := n.controllersAt(e, address)
		if err != nil {
			return false, err
		}
		if len(existing) == 0 {
			break
		}
		if slices.ContainsFunc(existing, controller.usable) {
			return false, n.replaceKeys(e, existing, step)
		}
		step.Doing("waiting until the kernel has removed %s", existing[0].name)
		if gone, err := poll(ctx, func() (bool, error) {
			left, err := n.controllersAt(e, address)
			return len(left) == 0, err
		}); err != nil {
			return false, err
		} else if !gone {
			return false, fmt.Errorf("%w %v: %s is %s", timeout(ctx), step, existing[0].name, existing[0].state)
		}
	}
	if err := e.CheckKeys(); err != nil {
		return false, err
	}
	missing, err := n.prepare(ctx, e, step)
	if err != nil {
		return false, err
	}
	if err := n.checkAuthenticates(e); err != nil {
		return false, err
	}
	step.Doing("the kernel connects to %s (write to /dev/nvme-fabrics)", e.portal())
	_, err = n.node.exchange(n.node.path("dev/nvme-fabrics"), fabricsOptions(e, address, n.hostFor(e), n.options)+keyOptions(e))
	if err == nil || errors.Is(err, syscall.EALREADY) {
		return err == nil, nil
	}
	if missing != nil && errors.Is(err, syscall.EINVAL) { // the kernel does not support the transport
		return false, missing
	}
	step.Doing("asking %s for the reason of its refusal", e.portal())
	return false, n.explain(ctx, e, address, err)
}

// hostFor returns the host name that this node connects with; see [Host.Multipath].
func (n *nvme) hostFor(e Export) Host {
	if e.Multipath && n.nativeMultipath() {
		return n.host.Multipath()
	}
	return n.host
}

// nativeMultipath reports whether the kernel combines a subsystem's controllers into one device.
func (n *nvme) nativeMultipath() bool {
	return n.node.attribute("sys/module/nvme_core/parameters", "multipath") == "Y"
}

// prepare loads the kernel modules for NVMe over Fabrics. It fails if /dev/nvme-fabrics does not
// exist. missing is the reason why the transport's module may be missing, or nil. Only a connection
// attempt shows whether the module is really missing.
func (n *nvme) prepare(ctx context.Context, e Export, step *operation.Step) (missing, err error) {
	module := "nvme-" + string(e.Transport)
	if !n.node.hasModule(module) || !n.node.exists("dev/nvme-fabrics") {
		step.Doing("modprobe %s", module)
		missing = n.node.loadModule(ctx, n.exec, module)
	}
	if _, err := poll(ctx, func() (bool, error) {
		return missing != nil || n.node.exists("dev/nvme-fabrics"), nil
	}); err != nil {
		return missing, err
	}
	if !n.node.exists("dev/nvme-fabrics") {
		return missing, fmt.Errorf("%w: no /dev/nvme-fabrics: load the kernel module %s on the node, and mount the host's /dev (%w)",
			ErrUnsupported, module, errors.Join(missing, ctx.Err()))
	}
	return missing, nil
}

// waitForDevice waits for the export's namespace on a live controller, and for its device node.
func (n *nvme) waitForDevice(ctx context.Context, e Export, step *operation.Step) (Device, error) {
	var d Device
	var last error
	live := time.Time{}
	rescanned := false
	step.Doing("waiting for the namespace")
	inTime, err := poll(ctx, func() (bool, error) {
		d, last = n.find(e)
		if errors.Is(last, ErrNotConnected) {
			return false, fmt.Errorf("the kernel has removed the connection: see the node's kernel log: %w", last)
		}
		// The device may exist even though its target is unreachable; reads from it would then wait
		// forever.
		up, err := n.liveControllers(e)
		if err != nil || len(up) == 0 {
			live, rescanned = time.Time{}, false
			return false, err
		}
		if last == nil {
			return true, nil
		}
		if live.IsZero() {
			live = time.Now()
		}
		if waited := time.Since(live); waited > n.namespaceLimit() {
			return false, last
		} else if waited > n.namespaceLimit()/4 && !rescanned {
			// The target's notification of a new namespace may have been lost.
			rescanned = true
			step.Doing("rescanning %s for the namespace", up[0].name)
			return false, n.rescanControllers(up)
		}
		return false, nil
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w %v: check whether the target is running; controllers: %s", timeout(ctx), step, n.describe(e))
		if last != nil {
			err = fmt.Errorf("%w: %w", err, last)
		}
	}
	if err != nil {
		return Device{}, err
	}
	return d, nil
}

// undo removes the controller that this call created, unless another volume is now using it.
func (n *nvme) undo(ctx context.Context, e Export, step *operation.Step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := n.disconnect(ctx, e, step); err != nil {
		return fmt.Errorf("undo the connection: %w", err)
	}
	return nil
}

func (n *nvme) find(e Export) (Device, error) {
	controllers, err := n.controllers(e.NQN)
	if err != nil {
		return Device{}, err
	}
	return n.findBehind(e, controllers, n.subsystems)
}

// findBehind returns the device that the given controllers provide for an export.
func (n *nvme) findBehind(e Export, controllers []controller, subsystems func() (map[string][]string, error)) (Device, error) {
	if len(controllers) == 0 {
		return Device{}, fmt.Errorf("%w: this node has no controller for the subsystem", ErrNotConnected)
	}
	all, err := subsystems()
	if err != nil {
		return Device{}, err
	}
	found, err := n.namespaces(controllers, all)
	if err != nil {
		return Device{}, err
	}
	ns, err := choose(e, found)
	if err != nil {
		return Device{}, err
	}
	d, err := n.node.device(ns.name)
	switch {
	case err != nil:
		return Device{}, err
	case d.SizeBytes == 0:
		return Device{}, fmt.Errorf("%w: %s has size 0: the target has removed the namespace", ErrNoNamespace, ns.name)
	}
	d.UUID = ns.uuid
	return d, nil
}

func (n *nvme) disconnect(ctx context.Context, e Export, step *operation.Step) error {
	controllers, err := n.controllers(e.NQN)
	if err != nil || len(controllers) == 0 {
		return err
	}
	step.Doing("checking whether the subsystem's devices are in use")
	subsystems, err := n.subsystems()
	if err != nil {
		return err
	}
	all, err := n.namespaces(controllers, subsystems)
	if err != nil {
		return err
	}
	// The target may have removed the namespace. If the volume's namespace cannot be identified,
	// any namespace in use may belong to the volume.
	ours, chooseErr := choose(e, all)
	known := chooseErr == nil || errors.Is(chooseErr, ErrNoNamespace)
	for _, ns := range all {
		err := n.node.inUse(ns.name)
		if errors.Is(err, ErrBusy) && known && ns.name != ours.name {
			n.log.Info("connection kept: another volume of the subsystem is in use", "nqn", e.NQN, "device", ns.name)
			return nil
		}
		if err != nil {
			return err
		}
	}
	if err := n.deleteControllers(controllers, step); err != nil {
		return err
	}
	return n.awaitRemoval(ctx, e, step)
}

// awaitRemoval waits until a subsystem has no controllers.
func (n *nvme) awaitRemoval(ctx context.Context, e Export, step *operation.Step) error {
	step.Doing("waiting until the kernel has removed the controllers")
	gone, err := poll(ctx, func() (bool, error) {
		left, err := n.controllers(e.NQN)
		return len(left) == 0, err
	})
	if err == nil && !gone {
		err = fmt.Errorf("%w %v: controllers: %s", timeout(ctx), step, n.describe(e))
	}
	return err
}

// deleteControllers makes the kernel remove controllers.
func (n *nvme) deleteControllers(controllers []controller, step *operation.Step) error {
	for _, c := range controllers {
		step.Doing("the kernel removes %s (write to its delete_controller)", c.name)
		err := n.node.write(n.node.path("sys/class/nvme", c.name, "delete_controller"), "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("remove controller %s: %w", c.name, err)
		}
	}
	return nil
}

func (n *nvme) rescan(ctx context.Context, e Export, wantBytes int64, step *operation.Step) (int64, error) {
	d, err := n.find(e)
	if err != nil || d.SizeBytes >= wantBytes {
		return d.SizeBytes, err
	}
	up, err := n.liveControllers(e)
	if err != nil {
		return 0, err
	}
	if err := n.rescanControllers(up); err != nil {
		return 0, err
	}
	step.Doing("waiting for the device to grow")
	inTime, err := poll(ctx, func() (bool, error) {
		d, err = n.find(e)
		return err == nil && d.SizeBytes >= wantBytes, err
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w %v: %s has %d bytes, but %d are requested: resize the volume on the target first (controllers: %s)",
			timeout(ctx), step, d.Path, d.SizeBytes, wantBytes, n.describe(e))
	}
	return d.SizeBytes, err
}

func (n *nvme) rescanControllers(controllers []controller) error {
	for _, c := range controllers {
		if err := n.node.write(n.node.path("sys/class/nvme", c.name, "rescan_controller"), "1"); err != nil {
			return fmt.Errorf("rescan controller %s: %w", c.name, err)
		}
	}
	return nil
}

// resolve resolves a host name, because the kernel accepts only addresses.
func resolve(ctx context.Context, address string) (string, error) {
	if net.ParseIP(address) != nil || strings.Contains(address, ":") {
		return address, nil
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, address)
	if err != nil {
		return "", fmt.Errorf("%w: look up the host name in %s: %w", ErrUnreachable, KeyTargetAddr, err)
	}
	slices.Sort(addresses)
	return addresses[0], nil
}
