package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/test/suites/e2e/sandbox"
)

// A Node is a node in the cluster, with its own machine. Only one goroutine may call its methods at
// a time.
type Node struct {
	Name    string
	Address string

	// Kubelet is the node's kubelet, for tests that kill it. StartKubelet starts the kubelet again.
	Kubelet *Process

	cluster    *Cluster
	number     int // counted from 1
	boots      int
	machine    *sandbox.Machine // nil while the node has no power
	containerd *Process
}

func (c *Cluster) node(number int) *Node {
	return &Node{Name: fmt.Sprint("node-", number), Address: fmt.Sprint("10.99.0.", 10+number), cluster: c, number: number}
}

// Node returns the node with the given name.
func (c *Cluster) Node(name string) (*Node, error) {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no node %q", name)
}

// path returns a path in the directory that is the node's disk.
func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.cluster.path(n.Name)}, parts...)...)
}

// Disk translates a path on the node, below /var/lib/kubelet, /var/lib/containerd, /var/lib/cni or
// /var/log, to a path outside the node. It works even while the node has no power. The node's
// mounts are not visible outside the node.
func (n *Node) Disk(path string) string { return n.path(path) }

// On reports whether the node has power.
func (n *Node) On() bool { return n.machine != nil }

func (n *Node) cgroup() string { return filepath.Join(n.cluster.options.Cgroup, n.Name) }

// pods returns the address range of the node's pods.
func (n *Node) pods() string { return fmt.Sprintf("10.244.%d.0/24", n.number) }

// boot starts the node's machine and containerd.
func (n *Node) boot(ctx context.Context) error {
	if err := errors.Join(n.configure(), sandbox.MakeCgroup(n.cgroup())); err != nil {
		return err
	}
	var err error
	if n.machine, err = sandbox.StartMachine(n.Name); err != nil {
		return err
	}
	n.boots++
	if err := n.connect(); err != nil {
		return err
	}
	if err := n.machine.Do(n.prepare); err != nil {
		return fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	return n.startContainerd(ctx)
}

// prepare mounts the node's directories and sets up its network. It runs on the node's machine.
func (n *Node) prepare() error {
	for _, dir := range nodeFolders {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(n.path(dir), dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return errors.Join(ip(fmt.Sprintf("link set lo up\naddress add %s/24 dev eth0\nlink set eth0 up\nroute add default via %s\n", n.Address, Address)), forward())
}

// connect connects the machine to the bridge. The bridge's port gets a new name at each boot,
// because the kernel does not remove the port of a stopped machine immediately.
func (n *Node) connect() error {
	port := fmt.Sprintf("%s.%d", n.Name, n.boots)
	return ip(fmt.Sprintf("link add %[1]s type veth peer name eth0 netns %[2]d\nlink set %[1]s master lan0 up\n", port, n.machine.Pid()))
}

// PowerOn starts a node that has no power, and waits until it is ready.
func (n *Node) PowerOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if n.machine == nil {
		if err := n.boot(ctx); err != nil {
			return err
		}
	}
	if err := n.StartKubelet(ctx); err != nil {
		return err
	}
	return n.startPolicies(ctx)
}

// PowerOff kills all of the node's processes at once. Data that its file systems have not yet
// written to block devices is lost. Its mounts, its cgroups and the files in /run disappear, and
// its block devices are detached.
func (n *Node) PowerOff() error {
	volumes, err := n.openVolumes()
	if err != nil {
		return err
	}
	killed := n.machine.Kill()
	if killed == nil {
		n.machine = nil // whatever fails from here on, PowerOn can start it again
	}
	for _, v := range volumes {
		if killed == nil {
			err = errors.Join(err, shutDown(v))
		}
		err = errors.Join(err, v.Close())
	}
	if killed != nil {
		return errors.Join(killed, err)
	}
	return errors.Join(err, n.cluster.options.Unplug(n.Name), sandbox.RemoveCgroup(n.cgroup()))
}
