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

// These addresses are used inside the sandbox.
const (
	// Address is the address of the control plane's machine for nodes and pods.
	Address = "10.99.0.1"

	// ServiceAddress is the address of the Service kubernetes. It is on the loopback interface,
	// because there is no kube-proxy.
	ServiceAddress = "10.96.0.1"
	serviceRange   = "10.96.0.0/24"
)

// nodeFolders lists the directories that every node has its own copy of.
var nodeFolders = []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log"}

// prepareHost adds the packages' programs to /usr, creates the directories that nodes replace with
// their own, and creates the network between the nodes. These changes disappear together with the
// sandbox, and do not affect the machine.
func (c *Cluster) prepareHost() error {
	for _, o := range []struct{ dir, lower string }{
		{"/usr", "/usr:" + filepath.Join(c.options.Packages, "usr")}, {"/var/lib", "/var/lib"},
	} {
		upper, work := c.path("overlay", o.dir, "upper"), c.path("overlay", o.dir, "work")
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount("overlay", o.dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", o.lower, upper, work)); err != nil {
			return fmt.Errorf("overlay %s: %w", o.dir, err)
		}
	}
	for _, dir := range nodeFolders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if c.options.PolicyController != "" {
		if err := linkIPTables(); err != nil {
			return err
		}
	}
	return c.prepareNetwork()
}

// network creates a bridge for the nodes. The bridge has a fixed MAC address, because it would
// otherwise use the address of one of its ports.
const network = `link set lo up
address add ` + ServiceAddress + `/32 dev lo
link add lan0 address 02:00:00:00:00:01 type bridge
address add ` + Address + `/24 dev lan0
link set lan0 up
`

func (c *Cluster) prepareNetwork() error {
	commands := network
	for _, n := range c.Nodes {
		commands += fmt.Sprintf("route add %s via %s\n", n.pods(), n.Address)
	}
	return errors.Join(ip(commands), forward())
}

// ip runs a batch of commands with the program ip.
func ip(commands string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("change the network: %w: %s", err, out)
	}
	return nil
}

// forward lets the kernel forward packets from and to pods.
func forward() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }
