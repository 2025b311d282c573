package connect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	utilexec "k8s.io/utils/exec"
)

// moduleOf maps each transport, by its name in the targets' configuration, to its kernel module.
var moduleOf = map[string]string{"nvme-tcp": "nvme-tcp", "nvme-rdma": "nvme-rdma", "iscsi": "iscsi_tcp"}

// CheckTransport fails unless name is a transport: nvme-tcp, nvme-rdma or iscsi.
func CheckTransport(name string) error {
	if moduleOf[name] == "" {
		return fmt.Errorf("%w: transport %q: use nvme-tcp, nvme-rdma or iscsi", ErrUnsupported, name)
	}
	return nil
}

// LoadModules makes sure that the kernel has the modules for transports (nvme-tcp, nvme-rdma,
// iscsi). It loads modules that are neither built in nor already loaded. It fails with
// [ErrUnsupported] if a module is missing on the node. Only the fields Root and Exec of o are used.
func LoadModules(ctx context.Context, transports []string, o Options) error {
	var failures []error
	for _, t := range transports {
		if err := CheckTransport(t); err != nil {
			return err
		}
		failures = append(failures, LoadModule(ctx, moduleOf[t], o))
	}
	return errors.Join(failures...)
}

// LoadModule makes sure that the kernel has a module, in the same way as LoadModules.
func LoadModule(ctx context.Context, module string, o Options) error {
	if o.Exec == nil {
		o.Exec = utilexec.New()
	}
	return newNode(o.Root).loadModule(ctx, o.Exec, module)
}

// loadModule makes sure that a module is loaded or built in. Many hosts have no modprobe that a
// container can use. On those hosts the module may be built in, or loaded at boot.
func (n *node) loadModule(ctx context.Context, exec utilexec.Interface, module string) error {
	if n.hasModule(module) {
		return nil
	}
	out, err := exec.CommandContext(ctx, "modprobe", module).CombinedOutput()
	if err == nil || n.hasModule(module) {
		return nil
	}
	reason := strings.TrimSpace(string(out))
	if notInstalled(err) {
		reason = "modprobe is not installed here"
	}
	return fmt.Errorf("%w: the node's kernel has not loaded the module %s, and it cannot be loaded from here (modprobe %s: %w: %s): load it on the node at every boot "+
		"(/etc/modules-load.d, or machine.kernel.modules on Talos); if the module does not exist, install the distribution's package with additional kernel modules", ErrUnsupported, module, module, err, reason)
}

// hasModule reports whether a module is loaded or built into the kernel. Built-in modules without
// parameters appear only in the kernel's list of built-in modules, not in /sys/module.
func (n *node) hasModule(module string) bool {
	if n.exists("sys/module", strings.ReplaceAll(module, "-", "_")) {
		return true
	}
	release := n.attribute("proc/sys/kernel/osrelease")
	if release == "" {
		return false
	}
	f, err := os.Open(n.path("lib/modules", release, "modules.builtin"))
	if err != nil {
		return false
	}
	defer f.Close()
	names := []string{strings.ReplaceAll(module, "-", "_") + ".ko", strings.ReplaceAll(module, "_", "-") + ".ko"}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if slices.Contains(names, path.Base(lines.Text())) {
			return true
		}
	}
	return false
}
