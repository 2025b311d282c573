package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const containerdSocket = "/run/containerd/containerd.sock"

// restrict_oom_score_adj: the sandbox may run in a container that may not lower its score.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "%s"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

const cniConfig = `{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge",
    "bridge": "pods0",
    "isGateway": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podRange + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

// syncFrequency and nodeStatusUpdateFrequency are shorter than kubelet's defaults, with which a pod takes 7 to 10 s and an
// expansion a minute.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: ` + Address + `
readOnlyPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %[1]q}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://` + containerdSocket + `
cgroupDriver: cgroupfs
cgroupRoot: /%[2]s
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
resolvConf: %[3]q
clusterDNS: [` + Address + `]
syncFrequency: 5s
nodeStatusUpdateFrequency: 4s
volumeStatsAggPeriod: 10s
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`

// startContainerd starts containerd and imports the images.
func (c *Cluster) startContainerd(ctx context.Context) error {
	cni := c.path("cni")
	for path, text := range map[string]string{
		c.path("containerd.toml"):        fmt.Sprintf(containerdConfig, cni),
		filepath.Join(cni, "1.conflist"): cniConfig,
		c.path("resolv.conf"):            "nameserver " + Address + "\n",
		c.path("kubelet.yaml"):           fmt.Sprintf(kubeletConfig, c.pki.path("ca.crt"), c.options.Cgroup, c.path("resolv.conf")),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	p, err := c.Start("containerd", "containerd", "--config", c.path("containerd.toml"))
	if err != nil {
		return err
	}
	if err := p.ready(ctx, func() error { return ctr(ctx, "version") }); err != nil {
		return err
	}
	for _, image := range c.options.Images {
		if err := ctr(ctx, "images", "import", image); err != nil {
			return err
		}
	}
	c.options.Log("containerd is ready, with %d images", len(c.options.Images))
	return nil
}

func ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %v: %w: %s", args, err, out)
	}
	return nil
}

// StartKubelet starts kubelet, also after it was killed, and waits until the node is ready.
func (c *Cluster) StartKubelet(ctx context.Context) error {
	var err error
	c.Kubelet, err = c.Start("kubelet", c.options.Programs["kubelet"],
		"--kubeconfig="+c.pki.path(node+".kubeconfig"), "--config="+c.path("kubelet.yaml"),
		"--hostname-override="+NodeName, "--node-ip="+Address, "--v=2")
	if err != nil {
		return err
	}
	err = c.Kubelet.ready(ctx, func() error {
		return c.Kubectl().ask(ctx, "wait", "--for=condition=Ready", "node/"+NodeName, "--timeout=1s")
	})
	if err == nil {
		c.options.Log("kubelet is ready")
	}
	return err
}
