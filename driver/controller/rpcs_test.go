package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A methodMeter counts, by method, the RPCs made through it. It responds to spdkgate_config_await
// as the proxy does when the whole configuration is saved.
type methodMeter struct {
	mu   sync.Mutex
	sent map[string]int
}

func (m *methodMeter) measure(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var call struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		_ = json.Unmarshal(body, &call)
		m.mu.Lock()
		m.sent[call.Method]++
		m.mu.Unlock()
		if call.Method == "spdkgate_config_await" {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":[]}`, call.ID)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// take returns the methods in order, each with the number of calls, and resets the counts.
func (m *methodMeter) take() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for method, n := range m.sent {
		if n > 1 {
			method += fmt.Sprint(" x", n)
		}
		list = append(list, method)
	}
	slices.Sort(list)
	m.sent = map[string]int{}
	return list
}

// TestEachCallMakesItsExpectedRPCs lists the RPCs of each CSI call for a raw block volume. Each RPC
// costs the driver and the proxy CPU time. docs/design/csi-controller.md, "Rounds and cost",
// explains which of these RPCs are needed.
func TestEachCallMakesItsExpectedRPCs(t *testing.T) {
	for name, c := range map[string]struct {
		release, transport string
		want               map[string][]string
	}{
		"v26.05 over NVMe-oF": {"v26.05", config.TargetNVMeTCP, map[string][]string{
			"create":          {"bdev_get_bdevs x3", "bdev_lvol_create", "bdev_lvol_get_lvstores", "bdev_wait_for_examine", "spdkgate_target_get_info"},
			"create again":    {"bdev_get_bdevs x3", "bdev_lvol_get_lvstores", "bdev_wait_for_examine", "spdkgate_target_get_info"},
			"publish":         {"bdev_get_bdevs x2", "nvmf_create_subsystem", "nvmf_get_subsystems x4", "nvmf_subsystem_add_host x2", "nvmf_subsystem_add_listener", "nvmf_subsystem_add_ns", "spdkgate_target_get_info"},
			"publish again":   {"bdev_get_bdevs x2", "nvmf_get_subsystems x4", "spdkgate_config_await", "spdkgate_target_get_info"},
			"unpublish":       {"bdev_get_bdevs x2", "nvmf_delete_subsystem", "nvmf_get_subsystems"},
			"unpublish again": {"bdev_get_bdevs x2", "nvmf_get_subsystems", "spdkgate_config_await"},
			"delete":          {"bdev_get_bdevs x2", "bdev_lvol_delete", "nvmf_get_subsystems"},
		}},
		"v26.05 over iSCSI": {"v26.05", config.TargetISCSI, map[string][]string{
			"create":          {"bdev_get_bdevs x3", "bdev_lvol_create", "bdev_lvol_get_lvstores", "bdev_wait_for_examine", "spdkgate_target_get_info"},
			"create again":    {"bdev_get_bdevs x3", "bdev_lvol_get_lvstores", "bdev_wait_for_examine", "spdkgate_target_get_info"},
			"publish":         {"bdev_get_bdevs x2", "iscsi_create_initiator_group", "iscsi_create_target_node", "iscsi_get_initiator_groups x2", "iscsi_get_portal_groups", "spdkgate_config_await x2", "spdkgate_target_get_info"},
			"publish again":   {"bdev_get_bdevs x2", "iscsi_create_target_node", "iscsi_get_initiator_groups x4", "iscsi_get_portal_groups", "iscsi_get_target_nodes x2", "spdkgate_config_await x2", "spdkgate_target_get_info"},
			"unpublish":       {"bdev_get_bdevs x2", "iscsi_delete_initiator_group", "iscsi_delete_target_node", "iscsi_get_initiator_groups", "iscsi_get_target_nodes x2", "spdkgate_config_await"},
			"unpublish again": {"bdev_get_bdevs x2", "iscsi_get_initiator_groups", "iscsi_get_target_nodes", "spdkgate_config_await"},
			"delete":          {"bdev_get_bdevs x2", "bdev_lvol_delete", "iscsi_get_initiator_groups", "iscsi_get_target_nodes"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			target := newSimTargetWith(t, "t0", spdktest.Options{Release: rpcschema.MustRelease(c.release)}, storeMiB, "lvs0")
			meter := &methodMeter{sent: map[string]int{}}
			target.gateway.Config.Handler = meter.measure(target.gateway.Config.Handler)
			cfg := config.Config{Nodes: []config.Target{{TargetType: c.transport}}, Placement: config.Placement{ThinOvercommit: 1000}}
			b := newTestControllerOf(t, cfg, target)
			b.readSizes(t)
			rawBlock := drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, true)
			got := map[string][]string{}
			// The figures for the second volume are the actual cost of each call. The figures for
			// the first also include filling the controller's caches.
			for _, name := range []string{"pvc-1", "pvc-2"} {
				count := func(call string, do func(ctx context.Context) error) {
					meter.take()
					require.NoError(t, do(volume.AskOnce(t.Context())), call) // as the driver's gRPC server does
					got[call] = meter.take()
				}
				var v *csi.Volume
				create := func(ctx context.Context) error {
					req := b.request(name, 1*mib)
					req.VolumeCapabilities = []*csi.VolumeCapability{rawBlock}
					r, err := b.CreateVolume(ctx, req)
					v = r.GetVolume()
					return err
				}
				publish := func(ctx context.Context) error {
					_, err := b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: nodeA, VolumeCapability: rawBlock, Secrets: b.secrets, VolumeContext: v.GetVolumeContext()})
					return err
				}
				unpublish := func(ctx context.Context) error {
					_, err := b.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: nodeA, Secrets: b.secrets})
					return err
				}
				count("create", create)
				count("create again", create)
				count("publish", publish)
				count("publish again", publish)
				count("unpublish", unpublish)
				count("unpublish again", unpublish)
				count("delete", func(ctx context.Context) error {
					_, err := b.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId(), Secrets: b.secrets})
					return err
				})
			}
			assert.Equal(t, c.want, got)
		})
	}
}
