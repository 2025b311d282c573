package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Addresses inside the sandbox.
const (
	// Address is the node's address, which pods reach.
	Address = "10.99.0.1"

	serviceAddress = "10.96.0.1" // of Service kubernetes: on the loopback interface, as there is no kube-proxy
	serviceRange   = "10.96.0.0/24"
	podRange       = "10.244.0.0/24"
)

// prepareHost adds the packages' programs to /usr, gives Kubernetes folders of its own at their usual paths, and makes the
// network. All of it ends with the sandbox, and nothing of the machine changes.
func (c *Cluster) prepareHost() error {
	for _, o := range []struct{ dir, lower string }{
		{"/usr", "/usr:" + filepath.Join(c.options.Packages, "usr")}, {"/var/lib", "/var/lib"}, {"/var/log", "/var/log"},
	} {
		upper, work := c.path("overlay", o.dir, "upper"), c.path("overlay", o.dir, "work")
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount("overlay", o.dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", o.lower, upper, work)); err != nil {
			return fmt.Errorf("overlay %s: %w", o.dir, err)
		}
	}
	for _, dir := range []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni"} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(c.path(dir), 0o755)); err != nil {
			return err
		}
		if err := unix.Mount(c.path(dir), dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return c.prepareNetwork()
}

// The kernel may have no dummy device, so the node's address is on one end of a pair.
const network = `link set lo up
address add ` + serviceAddress + `/32 dev lo
link add node0 type veth peer name node1
link set node1 up
address add ` + Address + `/24 dev node0
link set node0 up
route add default dev node0
`

func (c *Cluster) prepareNetwork() error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(network)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the network: %w: %s", err, out)
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
