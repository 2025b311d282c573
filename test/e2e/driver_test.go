//go:build kubernetes

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/test/e2e/cluster"
	"github.com/spdkgate/spdkgate/test/e2e/sandbox"
	"github.com/spdkgate/spdkgate/test/e2e/storage"
)

// Names in deploy/kubernetes.
const (
	driverName       = "csi.spdk.io"
	driverNamespace  = "spdkcsi"
	driverDeployment = "spdkcsi-controller"
	driverDaemonSet  = "spdkcsi-node"
	driverSecret     = "spdkcsi-secret"
	storageClass     = "spdkcsi-sc"
)

const rolloutTimeout = "--timeout=5m"

// A driver is the driver in the cluster, with its storage server.
type driver struct {
	dir     string // of the sandbox
	server  *storage.Server
	kubectl cluster.Kubectl // in the driver's namespace
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
		Nodes: 2,
		Unplug: func(node string) error {
			return sandbox.DetachLoops(filepath.Join(dir, storageFolder), storage.LoopLabel(node))
		},
	})
	if err != nil {
		return err
	}
	env.cluster = c
	d := &driver{dir: dir, kubectl: c.Kubectl().In(driverNamespace)}
	d.server, err = storage.Start(ctx, storage.Options{
		Dir: filepath.Join(dir, storageFolder), Proxy: b.Programs["spdk-proxy"], Address: cluster.Address, Log: filepath.Join(c.Logs(), "spdk-proxy.log"),
	})
	if err != nil {
		return err
	}
	progress("spdk-proxy answers")
	env.driver = d
	return d.install(ctx, b)
}

func snapshotControllerFolder(b built) string {
	return filepath.Join(b.Modules[snapshotController], "deploy/kubernetes/snapshot-controller")
}

// install applies the manifests, and returns when the driver is in service.
func (d *driver) install(ctx context.Context, b built) error {
	crds := filepath.Join(b.Modules[snapshotCRDs], "config/crd")
	for _, kind := range []string{"classes", "contents", "s"} {
		if _, err := d.kubectl.Run(ctx, "", "apply", "--filename", filepath.Join(crds, "snapshot.storage.k8s.io_volumesnapshot"+kind+".yaml")); err != nil {
			return err
		}
	}
	if _, err := d.kubectl.Run(ctx, "", "wait", "--for=condition=Established", "crd", "--all", rolloutTimeout); err != nil {
		return err
	}
	if _, err := env.cluster.Kubectl().Run(ctx, "", "apply", "--kustomize", snapshotControllerFolder(b)); err != nil {
		return err
	}
	overlay, err := d.writeOverlay()
	if err != nil {
		return err
	}
	if _, err := env.cluster.Kubectl().Run(ctx, "", "apply", "--kustomize", overlay); err != nil {
		return err
	}
	progress("the manifests are applied")
	g, ctx := errgroup.WithContext(ctx)
	for _, args := range [][]string{
		{"rollout", "status", "deployment/" + driverDeployment, rolloutTimeout},
		{"rollout", "status", "daemonset/" + driverDaemonSet, rolloutTimeout},
		{"rollout", "status", "deployment/snapshot-controller", "--namespace=kube-system", rolloutTimeout},
		{"wait", "csinode", "--all", "--for=jsonpath={.spec.drivers[*].name}=" + driverName, rolloutTimeout},
	} {
		g.Go(func() error {
			_, err := d.kubectl.Run(ctx, "", args...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return errors.Join(err, d.describe(context.WithoutCancel(ctx)))
	}
	progress("the driver is in service")
	return nil
}

// describe returns the state of the driver's pods as an error.
func (d *driver) describe(ctx context.Context) error {
	pods, err := d.kubectl.Run(ctx, "", "describe", "pods")
	return errors.Join(errors.New(pods[max(0, len(pods)-20_000):]), err)
}

// overlay is all that differs from `kubectl apply -k deploy/kubernetes`: configuration, secret, the proxy's certificate, and
// loop devices instead of NVMe/TCP.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - %[1]s
  - ca.yaml
components:
  - %[1]s/components/self-registration
patches:
  - path: config-map.yaml
  - path: secret.yaml
  - patch: |-
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {name: spdkcsi-node, namespace: spdkcsi}
      spec:
        template:
          spec:
            containers:
              - name: spdkcsi-node
                volumeMounts:
                  - {name: simulated-target, mountPath: %[2]q}
            volumes:
              - {name: simulated-target, hostPath: {path: %[2]q, type: Directory}}
  - target: {kind: DaemonSet, name: spdkcsi-node}
    patch: |-
      - {op: test, path: /spec/template/spec/containers/0/name, value: spdkcsi-node}
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --node-allow-loop}
`

func (d *driver) writeOverlay() (string, error) {
	dir := filepath.Join(d.dir, "overlay")
	base, err := filepath.Abs(filepath.Join(repository, "deploy/kubernetes"))
	if err != nil {
		return "", err
	}
	if base, err = filepath.Rel(dir, base); err != nil {
		return "", err
	}
	config, err1 := d.server.Config("/etc/spdkcsi-ca/ca.crt")
	secret, err2 := d.server.Secret()
	ca, err3 := d.server.CA()
	if err := errors.Join(err1, err2, err3, os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"kustomization.yaml": fmt.Sprintf(overlay, base, storage.DataDir(filepath.Join(d.dir, storageFolder))),
		"config-map.yaml":    object("ConfigMap", "spdkcsi-cm", "data", "config.json", config),
		"secret.yaml":        object("Secret", driverSecret, "stringData", "secret.json", secret),
		"ca.yaml":            object("ConfigMap", "spdkcsi-ca", "data", "ca.crt", ca),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// object returns a ConfigMap or Secret of the driver's namespace with one entry.
func object(kind, name, field, key, value string) string {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": driverNamespace}, field: map[string]any{key: value},
	})
	if err != nil {
		panic(err) // maps of strings can be encoded
	}
	return string(text)
}

// nothingLeft returns an error if something of the tests' volumes is still there.
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
