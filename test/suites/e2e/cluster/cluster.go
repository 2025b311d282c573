package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// startTimeout is long enough even for a busy machine.
	startTimeout = 5 * time.Minute
)

// Options describe a cluster.
type Options struct {
	Dir      string            // state directory of the sandbox
	Cgroup   string            // parent of the pods' cgroups; exists in all hierarchies
	Programs map[string]string // etcd, kube-apiserver, ..., kubelet, kubectl
	Packages string            // directory with the unpacked packages listed in the variable Packages
	Images   []string          // archives; one of them contains PauseImage
	Nodes    int               // number of nodes
	// StartupTaint is the key of the taint that a new node registers with.
	StartupTaint string
	Log          func(format string, args ...any)
	// Unplug detaches the block devices of a node that has lost power. It is called after the
	// node's processes and mounts have ended.
	Unplug func(node string) error
	// PolicyController is the path of kube-router, which enforces NetworkPolicies on each node. If
	// PolicyController is set, Packages must also contain PolicyPackages, and pods can use host
	// ports. If PolicyController is empty, NetworkPolicies are not enforced.
	PolicyController string
}

// PauseImage is the name of the image that holds a pod's namespaces. One of the images must have
// this name.
const PauseImage = "registry.k8s.io/pause:3.6"

// Packages lists the Debian packages with the programs that a node needs in addition to Kubernetes'
// own.
var Packages = []string{"containerd", "runc", "containernetworking-plugins", "iproute2"}

// PolicyPackages lists the Debian packages with the programs that kube-router needs.
var PolicyPackages = []string{"ipset", "iptables"}

// A Cluster is a running cluster.
type Cluster struct {
	options Options
	pki     *authority

	Nodes []*Node
}

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.options.Dir}, parts...)...)
}

// Logs returns the directory with the logs of all processes.
func (c *Cluster) Logs() string { return c.path("logs") }

// New starts a cluster and waits until its nodes are ready.
func New(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{options: o}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.MkdirAll(c.Logs(), 0o755); err != nil {
		return nil, err
	}
	for i := range o.Nodes {
		c.Nodes = append(c.Nodes, c.node(i+1))
	}
	var err error
	if c.pki, err = newAuthority(c.path("pki"), c.Nodes); err != nil {
		return nil, err
	}
	if err := c.prepareHost(); err != nil {
		return nil, fmt.Errorf("prepare the sandbox: %w", err)
	}
	g, all := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startControlPlane(all) })
	g.Go(func() error { return c.installImages(all) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	g, all = errgroup.WithContext(ctx)
	for _, n := range c.Nodes {
		g.Go(func() error { return n.PowerOn(all) })
	}
	return c, g.Wait()
}
