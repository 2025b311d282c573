package snapshot

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

const node = "snapshot-test-node"

// An environment consists of a target, a proxy, a relay between the two, and the driver.
type environment struct {
	*target
	name       string // of the target in the driver's configuration
	relay      *relay
	proxy      *proxyProcess
	controller *controller.Controller
}

func newEnvironment(g *target) *environment { return newEnvironments(g)[0] }

// newEnvironments returns an environment for each target. The environments share one driver.
func newEnvironments(targets ...*target) (all []*environment) {
	t := targets[0].t
	t.Helper()
	var nodes, tokens []any
	for i, g := range targets {
		w := &environment{target: g, name: fmt.Sprint("t", i+1), relay: startRelay(t, g.at("relay.sock"), g.path())}
		w.proxy = startProxy(g)
		nodes = append(nodes, map[string]any{
			"name": w.name, "rpcURL": w.proxy.url, "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "targetPort": freePort(t), "lvstores": []string{store},
		})
		tokens = append(tokens, map[string]any{"name": w.name, "username": "csi", "password": password})
		all = append(all, w)
	}
	text, err := json.Marshal(map[string]any{"nodes": nodes})
	require.NoError(t, err)
	cfg, err := config.Parse(text)
	require.NoError(t, err)
	secret, err := json.Marshal(map[string]any{"rpcTokens": tokens})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(targets[0].at("secret.json"), secret, 0o600))
	c, err := controller.New(cfg, targets[0].at("secret.json"), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for _, w := range all {
		w.controller = c
	}
	return all
}

var raw = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

// create creates a volume through CSI. kind is thin, thick or clone.
func (w *environment) create(name, kind string) *csi.Volume {
	w.t.Helper()
	request := &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: volumeBytes}, VolumeCapabilities: []*csi.VolumeCapability{raw},
		Parameters: map[string]string{"target": w.name},
	}
	switch kind {
	case "thick":
		request.Parameters["thin"] = "false"
	case "clone":
		source := w.create(name+"-source", "thin")
		request.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source.VolumeId}}}
	}
	made, err := w.controller.CreateVolume(w.t.Context(), request)
	require.NoError(w.t, err)
	return made.Volume
}

// publish publishes a volume to a node and returns the export's address and names.
func (w *environment) publish(v *csi.Volume, node string) initiator.Target {
	w.t.Helper()
	e, err := connect.ParseExport(w.publishContext(v, node), nil)
	require.NoError(w.t, err)
	require.True(w.t, e.Multipath, "the export does not report ANA")
	return initiator.Target{Address: e.Address + ":" + e.Port, NQN: e.NQN, HostNQN: connect.HostOf(node).Multipath().NQN}
}

func (w *environment) publishContext(v *csi.Volume, node string) map[string]string {
	w.t.Helper()
	published, err := w.controller.ControllerPublishVolume(w.t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: v.VolumeId, NodeId: node, VolumeCapability: raw, VolumeContext: v.VolumeContext,
	})
	require.NoError(w.t, err)
	return published.PublishContext
}

// uuid returns the lvol's UUID from a CSI volume or snapshot id.
func uuid(id string) string {
	_, u, _ := strings.Cut(id, ":")
	return u
}
