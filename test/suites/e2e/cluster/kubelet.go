package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const containerdSocket = "/run/containerd/containerd.sock"

// restrict_oom_score_adj is set because the sandbox may be running in a container that is not
// allowed to lower its score.
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
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }%s]
}
`

// portmapConfig makes the pods' host ports work. The plugin needs iptables.
const portmapConfig = `, {"type": "portmap", "capabilities": {"portMappings": true}}`

// syncFrequency and nodeStatusUpdateFrequency are shorter than kubelet's defaults. With the
// defaults, starting a pod takes 7 to 10 s, and expanding a volume takes a minute.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[4]s
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
syncFrequency: 2s
nodeStatusUpdateFrequency: 1s
nodeLeaseDurationSeconds: 12
volumeStatsAggPeriod: 10s
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
registerWithTaints: [{key: %[5]s, effect: NoExecute}]
`

// configure writes the configuration of containerd, CNI and kubelet.
func (n *Node) configure() error {
	cni, portmap := n.path("cni.d"), ""
	if n.cluster.options.PolicyController != "" {
		portmap = portmapConfig
	}
	for path, text := range map[string]string{
		n.path("containerd.toml"):        fmt.Sprintf(containerdConfig, cni),
		filepath.Join(cni, "1.conflist"): fmt.Sprintf(cniConfig, n.pods(), portmap),
		n.path("resolv.conf"):            "nameserver " + Address + "\n",
		n.path("kubelet.yaml"):           fmt.Sprintf(kubeletConfig, n.cluster.pki.path("ca.crt"), n.cgroup(), n.path("resolv.conf"), n.Address, n.cluster.options.StartupTaint),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) startContainerd(ctx context.Context) error {
	var err error
	n.containerd, err = n.start("containerd", "containerd", "--config", n.path("containerd.toml"))
	if err != nil {
		return err
	}
	return n.containerd.ready(ctx, func() error { return n.ctr(ctx, "version") })
}

func (n *Node) ctr(ctx context.Context, args ...string) error {
	return n.machine.Do(func() error {
		cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", containerdSocket, "--namespace", "k8s.io"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ctr %v: %w: %s", args, err, out)
		}
		return nil
	})
}

// StartKubelet starts kubelet, even after it has been killed, and waits until it reports that the
// node is ready. Like a service manager, StartKubelet starts it again if it exits. kubelet exits
// until containerd's CRI service, which only kubelet queries, is initialized.
func (n *Node) StartKubelet(ctx context.Context) error {
	const starts, pause = 20, time.Second
	for i := 1; ; i++ {
		err := n.startKubelet(ctx)
		if err == nil || !errors.Is(err, errEnded) || i == starts {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (n *Node) startKubelet(ctx context.Context) error {
	since := time.Now().Truncate(time.Second) // the API's times are in whole seconds
	var err error
	n.Kubelet, err = n.start("kubelet", n.cluster.options.Programs["kubelet"],
		"--kubeconfig="+n.cluster.pki.path(n.Name+".kubeconfig"), "--config="+n.path("kubelet.yaml"),
		"--hostname-override="+n.Name, "--node-ip="+n.Address, "--v=2")
	if err != nil {
		return err
	}
	err = n.Kubelet.ready(ctx, func() error { return n.reported(ctx, since) })
	if err == nil {
		n.cluster.options.Log("%s is ready", n.Name)
	}
	return err
}

// reported returns an error unless kubelet has reported since the given time that the node is
// ready.
func (n *Node) reported(ctx context.Context, since time.Time) error {
	const ready = `--output=jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}`
	text, err := n.cluster.Kubectl().Run(ctx, "", "get", "node", n.Name, ready)
	if err != nil {
		return err
	}
	status, last, _ := strings.Cut(text, " ")
	if at, err := time.Parse(time.RFC3339, last); err != nil || status != "True" || at.Before(since) {
		return fmt.Errorf("%s: the condition Ready is %q", n.Name, text)
	}
	return nil
}
