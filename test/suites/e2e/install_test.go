//go:build kubernetes

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/test/suites/e2e/storage"
)

const (
	release        = "spdk-csi" // the chart's release
	rolloutTimeout = "--timeout=5m"
	caFile         = "/etc/spdkcsi-ca/ca.crt" // its path in the driver's containers
)

func snapshotControllerFolder(b built) string {
	return filepath.Join(b.Modules[snapshotController], "deploy/kubernetes/snapshot-controller")
}

// install installs the snapshot controller and the chart, and returns when the driver is ready.
func (d *driver) install(ctx context.Context, b built) error {
	if err := d.installSnapshotController(ctx, b); err != nil {
		return err
	}
	progress("the snapshot controller is installed")
	if err := d.prepareSnapshotMetadata(ctx, b); err != nil {
		return err
	}
	if err := d.chart(ctx, "install", d.values()); err != nil {
		return err
	}
	progress("the chart is installed")
	return d.inService(ctx)
}

// installSnapshotController applies upstream's manifests, with group snapshots.
func (d *driver) installSnapshotController(ctx context.Context, b built) error {
	kubectl := env.cluster.Kubectl()
	crds, err := filepath.Glob(filepath.Join(b.Modules[snapshotCRDs], "config/crd/*snapshot.storage.k8s.io_*.yaml"))
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if _, err := kubectl.Run(ctx, "", "apply", "--server-side", "--filename", crd); err != nil {
			return err
		}
	}
	if _, err := kubectl.Run(ctx, "", "wait", "--for=condition=Established", "crd", "--all", rolloutTimeout); err != nil {
		return err
	}
	dir := filepath.Join(d.dir, "snapshot-controller")
	base, err := filepath.Rel(dir, snapshotControllerFolder(b))
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, snapshotControllerOverlay, base), 0o644)); err != nil {
		return err
	}
	_, err = kubectl.Run(ctx, "", "apply", "--kustomize", dir)
	return err
}

// Upstream sets minReadySeconds to 35 because of its liveness probe.
const snapshotControllerOverlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%q]
patches:
  - target: {kind: Deployment, name: snapshot-controller}
    patch: |-
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --feature-gates=CSIVolumeGroupSnapshot=true}
      - {op: replace, path: /spec/minReadySeconds, value: 0}
      - {op: replace, path: /spec/replicas, value: 1}
`

// inService waits until the driver's pods are ready and the driver is registered on the nodes.
func (d *driver) inService(ctx context.Context) error {
	g, waiting := errgroup.WithContext(ctx)
	for _, args := range [][]string{
		{"rollout", "status", "deployment/" + driverDeployment, rolloutTimeout},
		{"rollout", "status", "daemonset/" + driverDaemonSet, rolloutTimeout},
		{"rollout", "status", "deployment/snapshot-controller", "--namespace=kube-system", rolloutTimeout},
		{"wait", "csinode", "--all", "--for=jsonpath={.spec.drivers[*].name}=" + driverName, rolloutTimeout},
	} {
		g.Go(func() error {
			_, err := d.kubectl.Run(waiting, "", args...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		pods, describeErr := d.kubectl.Run(context.WithoutCancel(ctx), "", "describe", "pods")
		return errors.Join(err, errors.New(pods[max(0, len(pods)-20_000):]), describeErr)
	}
	progress("the driver is in service")
	return nil
}

// data returns the directory with the simulated target's volumes.
func (d *driver) data() string { return storage.DataDir(filepath.Join(d.dir, storageFolder)) }

// values returns the chart's values for the tests: configuration, credentials, the proxy's
// certificate, loop devices instead of NVMe/TCP, and the images that the tests build.
func (d *driver) values() map[string]any {
	data := d.data()
	return map[string]any{
		"storageServers":   []any{d.server.Config(caFile)},
		"credentials":      map[string]any{"accounts": []any{d.server.Account()}},
		"ca":               map[string]any{"certificates": d.server.CA()},
		"groupSnapshots":   true,
		"snapshotMetadata": map[string]any{"enabled": true, "caCertificate": d.metadataCA},
		"networkPolicy":    networkPolicy(),
		"volumeEvents":     "5s", // tests wait for Events
		"node": map[string]any{
			"lifecycle":         true, // implies self-registration
			"extraArgs":         []string{"--node-allow-loop"},
			"extraVolumes":      []any{map[string]any{"name": "simulated-target", "hostPath": map[string]any{"path": data, "type": "Directory"}}},
			"extraVolumeMounts": []any{map[string]any{"name": "simulated-target", "mountPath": data}},
		},
	}
}

// chart installs or upgrades the chart with values and further arguments for helm.
func (d *driver) chart(ctx context.Context, command string, values map[string]any, further ...string) error {
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	file := filepath.Join(d.dir, "values.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	chart, err := filepath.Abs(filepath.Join(repository, "deploy/helm/spdk-csi"))
	if err != nil {
		return err
	}
	args := append([]string{command, release, chart, "--values=" + file}, further...)
	if command == "install" {
		if err := d.createMetadataSecret(ctx); err != nil {
			return err
		}
	}
	_, err = d.runHelm(ctx, args...)
	return err
}

// runHelm runs Helm in the driver's namespace.
func (d *driver) runHelm(ctx context.Context, args ...string) (string, error) {
	return d.helmIn(ctx, driverNamespace, args...)
}

// helmIn runs Helm in a namespace, ignoring the user's configuration.
func (d *driver) helmIn(ctx context.Context, namespace string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.helm, append(args, "--namespace="+namespace)...)
	cmd.Env = []string{"HOME=" + filepath.Join(d.dir, "helm"), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + env.cluster.Kubeconfig()}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// uninstall removes the chart, with further flags for Helm, and returns an error if any of its
// objects still exist.
func (d *driver) uninstall(ctx context.Context, flags ...string) error {
	if _, err := d.runHelm(ctx, append([]string{"uninstall", release, "--wait", rolloutTimeout}, flags...)...); err != nil {
		return err
	}
	// Helm does not delete test pods, and the Secret does not belong to the chart.
	for _, object := range []string{"pod/spdkcsi-test", "secret/" + metadataSecret} {
		if _, err := d.kubectl.Run(ctx, "", "delete", object, "--ignore-not-found"); err != nil {
			return err
		}
	}
	if _, err := d.kubectl.Run(ctx, "", "wait", "pods", "--all", "--for=delete", rolloutTimeout); err != nil {
		return err
	}
	err := d.gone(ctx)
	d.uninstalled = err == nil
	return err
}

// gone returns an error if any of the driver's objects, or its registration on a node, still
// exists. It does not check volumes.
func (d *driver) gone(ctx context.Context) error {
	var left []string
	for _, object := range []string{
		"csidriver/" + driverName, "clusterrole,clusterrolebinding,snapshotmetadataservice,storageclass,volumesnapshotclass,validatingadmissionpolicy", "all,configmap,secret,serviceaccount,role,rolebinding,pdb",
	} {
		out, err := d.kubectl.Run(ctx, "", "get", object, "--ignore-not-found", "--output=name")
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(out) {
			if strings.Contains(name, "spdk") {
				left = append(left, name)
			}
		}
	}
	drivers, err := d.kubectl.Run(ctx, "", "get", "csinode", "--output=jsonpath={.items[*].spec.drivers[*].name}")
	if err != nil {
		return err
	}
	if drivers != "" {
		left = append(left, "the registration of "+drivers)
	}
	if len(left) > 0 {
		return fmt.Errorf("left after the driver was uninstalled: %s", strings.Join(left, ", "))
	}
	return nil
}
