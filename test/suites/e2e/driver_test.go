//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
	"github.com/spdkgate/spdkgate/test/suites/e2e/sandbox"
	"github.com/spdkgate/spdkgate/test/suites/e2e/storage"
)

// These are the names of objects in the chart.
const (
	driverName       = "csi.spdk.io"
	driverNamespace  = "spdkcsi"
	driverDeployment = "spdkcsi-controller"
	driverDaemonSet  = "spdkcsi-node"
	driverSecret     = "spdkcsi-secret"
	storageClass     = "spdkcsi-sc"
	startupTaint     = driverName + "/agent-not-ready"
)

// storageServer is the name of the storage server in the driver's configuration.
const storageServer = "storage-1"

// A driver represents the driver in the cluster and its storage server.
type driver struct {
	dir     string // of the sandbox
	server  *storage.Server
	kubectl cluster.Kubectl // in the driver's namespace
	// The programs, and the directory that contains kubectl.
	helm, plugin, programs string

	metadataCA string // certificate of csi-snapshot-metadata

	uninstalled bool // set by a test that has found no leftovers
}

// start starts everything that the tests use.
func start(ctx context.Context, dir string, b built) error {
	images, err := writeImages(filepath.Join(dir, "images"), b)
	if err != nil {
		return fmt.Errorf("make the images: %w", err)
	}
	progress("%d images are made", len(images))
	c, err := cluster.New(ctx, cluster.Options{
		Dir: dir, Cgroup: sandbox.Cgroup(dir), Programs: b.Programs, Packages: b.Node, Images: images, Log: progress,
		Nodes: 2, StartupTaint: startupTaint, PolicyController: *policyController,
		Unplug: func(node string) error {
			return sandbox.DetachLoops(filepath.Join(dir, storageFolder), storage.LoopLabel(node))
		},
	})
	if err != nil {
		return err
	}
	env.cluster, env.suite = c, b.Programs["storagesuite"]
	d := &driver{dir: dir, kubectl: c.Kubectl().In(driverNamespace), helm: b.Programs["helm"], plugin: b.Programs["kubectl-spdkgate"], programs: filepath.Dir(b.Programs["kubectl"])}
	jwks, err := c.Kubectl().Run(ctx, "", "get", "--raw", "/openid/v1/jwks")
	if err != nil {
		return err
	}
	d.server, err = storage.Start(ctx, storage.Options{
		Name: storageServer, Port: "9009",
		Dir: filepath.Join(dir, storageFolder), Proxy: b.Programs["spdk-proxy"], Address: cluster.Address, Log: filepath.Join(c.Logs(), "spdk-proxy.log"),
		JWKS: jwks, Issuer: cluster.Issuer, Subject: "system:serviceaccount:" + driverNamespace + ":spdkcsi-controller-sa",
	})
	if err != nil {
		return err
	}
	progress("spdk-proxy responds")
	env.driver = d
	return d.install(ctx, b)
}

// nothingLeft returns an error if any object that belongs to the tests' volumes still exists.
func nothingLeft(ctx context.Context) error {
	var left []string
	for _, kind := range []string{"persistentvolumes", "volumeattachments", "volumesnapshotcontents"} {
		out, err := env.cluster.Kubectl().Run(ctx, "", "get", kind, "--output=name")
		if err != nil {
			return err
		}
		left = append(left, strings.Fields(out)...)
	}
	objects, err := env.driver.server.Objects(ctx)
	if err != nil {
		return err
	}
	loops, err := sandbox.Loops(filepath.Join(env.driver.dir, storageFolder))
	if err != nil {
		return err
	}
	mounts, err := volumeMounts()
	if err != nil {
		return err
	}
	left = append(append(append(left, objects...), loops...), mounts...)
	if len(left) > 0 {
		return fmt.Errorf("left: %s", strings.Join(left, ", "))
	}
	return nil
}

// noVolumeOf returns an error if a PersistentVolume for a claim in the namespace still exists.
func noVolumeOf(ctx context.Context, namespace string) error {
	out, err := env.cluster.Kubectl().Run(ctx, "", "get", "persistentvolumes", "--output=jsonpath={.items[?(@.spec.claimRef.namespace=='"+namespace+"')].metadata.name}")
	if err == nil && out != "" {
		err = fmt.Errorf("left: %s", out)
	}
	return err
}

// volumeMounts returns the mounts of volumes on all nodes.
func volumeMounts() ([]string, error) {
	var found []string
	for _, n := range env.cluster.Nodes {
		mounts, err := n.Mounts()
		if err != nil {
			return nil, err
		}
		for _, m := range mounts {
			if strings.Contains(m.Path, "kubernetes.io~csi") || strings.Contains(m.Path, "/kubernetes.io/csi/") {
				found = append(found, m.Path+" of "+n.Name)
			}
		}
	}
	return found, nil
}
