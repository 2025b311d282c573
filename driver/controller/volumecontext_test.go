package controller

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

const lvolUUID = "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"

// For each type of target, the contexts describe what the target exports.
func TestContextsDescribeEachTargetType(t *testing.T) {
	v := volume.Volume{UUID: lvolUUID, SizeBytes: 4 * mib, Store: "lvs0"}
	nqn := export.NQN(lvolUUID)
	for _, c := range []struct {
		node      string
		transport export.Transport
		want      connect.Export
	}{
		{`"targetType": "NVMe-TCP", "targetAddr": "192.0.2.1"`, export.TCP, connect.Export{Transport: connect.TCP, Address: "192.0.2.1", Port: "4420", NQN: nqn}},
		{`"targetType": "nvme-rdma", "targetAddr": "192.0.2.1", "targetPort": "9"`, export.RDMA, connect.Export{Transport: connect.RDMA, Address: "192.0.2.1", Port: "9", NQN: nqn}},
		{`"targetType": "iscsi", "targetAddr": "192.0.2.1"`, export.ISCSI, connect.Export{Transport: connect.ISCSI, Address: "192.0.2.1", Port: "3260", IQN: export.IQN(lvolUUID)}},
		{`"targetType": "loop", "loopDir": "/data"`, export.TCP, connect.Export{Transport: connect.Loop, LoopDir: "/data", NQN: nqn}},
	} {
		cfg, err := config.Parse([]byte(`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", ` + c.node + `}]}`))
		require.NoError(t, err, c.node)
		n := cfg.Nodes[0]
		assert.Equal(t, c.transport, n.Transport(), c.node)
		c.want.NSUUID, c.want.SizeBytes = lvolUUID, 4*mib
		for _, m := range []map[string]string{volumeContext(n, v, class.Class{}, volume.Origin{}), publishContext(n, volume.Exported{Volume: v}, true)} {
			got, err := connect.ParseExport(m, nil)
			require.NoError(t, err, c.node)
			if c.want.Transport == connect.Loop {
				got.SizeBytes = c.want.SizeBytes // loop targets do not use the size
			}
			assert.Equal(t, c.want, got)
		}
	}
}

// The publish context contains all addresses; the volume context, which never changes, contains the
// first.
func TestPublishContextHasAllAddresses(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestControllerOf(t, config.Config{Nodes: []config.Target{{Addresses: []config.Address{
		{TargetAddr: "storage.example", ListenAddr: "127.0.0.1", Topology: map[string]string{"zone": "a"}}, {TargetAddr: "::1", TargetPort: "4421"}, {TargetAddr: "192.0.2.1"},
	}}}}, target)
	v := b.create(t, "pvc-1", 4*mib)
	assert.Equal(t, "storage.example", v.GetVolumeContext()["targetAddr"])
	assert.NotContains(t, v.GetVolumeContext(), "targetAddrs")
	resp, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	assert.Contains(t, b.logs.String(), "listen on 192.0.2.1:4420", "this machine does not have it")
	for zone, want := range map[string][]connect.Address{
		"a": {{Addr: "storage.example", Port: "4420"}, {Addr: "::1", Port: "4421"}, {Addr: "192.0.2.1", Port: "4420"}},
		"b": {{Addr: "::1", Port: "4421"}, {Addr: "192.0.2.1", Port: "4420"}},
	} {
		e, err := connect.ParseExport(resp.GetPublishContext(), map[string]string{"zone": zone})
		require.NoError(t, err)
		assert.Equal(t, want, append([]connect.Address{{Addr: e.Address, Port: e.Port}}, e.More...))
	}
	old, err := connect.ParseExport(map[string]string{
		"targetType": "tcp", "targetAddr": resp.GetPublishContext()["targetAddr"], "targetPort": resp.GetPublishContext()["targetPort"], "nqn": resp.GetPublishContext()["nqn"],
	}, nil)
	require.NoError(t, err)
	assert.Equal(t, "storage.example", old.Address, "nodes of earlier versions use the first")
	for _, address := range []string{"storage.example", "127.0.0.1", "::1"} {
		assert.False(t, b.exportedByHand(map[string]string{"targetType": "tcp", "targetAddr": address, "targetPort": "1", "nqn": old.NQN}), address)
	}
}

// CreateVolume checks mkfs options before it creates a volume. The options must be valid for the
// file system that Kubernetes or the class specifies.
func TestFilesystemOptionsAreCheckedBeforeCreation(t *testing.T) {
	b := newTestControllerOf(t, config.Config{}, newSimTarget(t, "t0", "lvs0"))
	create := func(name, fsType string, parameters map[string]string) (*csi.CreateVolumeResponse, error) {
		c := drivertest.Writer()
		c.GetMount().FsType = fsType
		return b.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*csi.VolumeCapability{c}, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 * mib}, Secrets: b.secrets, Parameters: parameters,
		})
	}
	resp, err := create("pvc-1", "xfs", map[string]string{"mkfsOptions": "-m reflink=0", "filesystemUUID": "volume"})
	require.NoError(t, err)
	assert.Equal(t, "-m reflink=0", resp.GetVolume().GetVolumeContext()["mkfsOptions"])
	assert.Equal(t, "volume", resp.GetVolume().GetVolumeContext()["filesystemUUID"])
	_, err = create("pvc-2", "", map[string]string{"fsType": "btrfs", "mkfsOptions": "-d single"})
	require.NoError(t, err)
	assert.NotContains(t, b.create(t, "pvc-3", 64*mib).GetVolumeContext(), "mkfsOptions")
	for name, refused := range map[string]struct {
		fsType, says string
		parameters   map[string]string
	}{
		"of another file system":   {"ext4", "mkfs.ext4 -m", map[string]string{"mkfsOptions": "-m reflink=0"}},
		"of the default":           {"", "mkfs.ext4 -n is not allowed", map[string]string{"mkfsOptions": "-n 16384"}},
		"unknown":                  {"btrfs", "mkfs.btrfs -r is not allowed: use --checksum", map[string]string{"mkfsOptions": "-r /"}},
		"empty":                    {"xfs", "mkfsOptions", map[string]string{"mkfsOptions": " "}},
		"UUID of ext4":             {"ext4", "for xfs and btrfs", map[string]string{"filesystemUUID": "volume"}},
		"UUID of the default":      {"", "for xfs and btrfs", map[string]string{"filesystemUUID": "volume"}},
		"UUID that cannot be kept": {"xfs", "filesystemUUID", map[string]string{"filesystemUUID": "random"}},
	} {
		_, err := create("pvc-9", refused.fsType, refused.parameters)
		drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
		require.ErrorContains(t, err, refused.says, name)
	}
}

// Only the volume context, which never changes, records whether a volume is encrypted. The class
// determines encryption for all of its volumes, including copies.
func TestVolumeContextMarksEncryptedVolumes(t *testing.T) {
	b := newTestControllerOf(t, config.Config{}, newSimTarget(t, "t0", "lvs0"))
	req := func(name string, c ...*csi.VolumeCapability) *csi.CreateVolumeRequest {
		return &csi.CreateVolumeRequest{
			Name: name, VolumeCapabilities: c, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 * mib}, Secrets: b.secrets,
			Parameters: map[string]string{"encryption": "luks2", "encryptionDiscards": "true"},
		}
	}
	resp, err := b.CreateVolume(t.Context(), req("pvc-1", writer))
	require.NoError(t, err)
	assert.Equal(t, "luks2", resp.GetVolume().GetVolumeContext()["encryption"])
	assert.Equal(t, "true", resp.GetVolume().GetVolumeContext()["encryptionDiscards"])
	published, err := b.publish(t.Context(), resp.GetVolume(), nodeA)
	require.NoError(t, err)
	assert.NotContains(t, published.GetPublishContext(), "encryption")
	assert.NotContains(t, b.create(t, "pvc-2", 64*mib).GetVolumeContext(), "encryption")

	_, err = b.CreateVolume(t.Context(), req("pvc-3", sharedBlock))
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
	require.ErrorContains(t, err, "each would encrypt it with its own key")
}

// If the CA file of a target cannot be read, the controller does not start.
func TestMissingCAFileIsReported(t *testing.T) {
	_, err := New(&config.Config{Nodes: []config.Target{{Name: "a", CAFile: filepath.Join(t.TempDir(), "none")}}}, "", slog.New(slog.DiscardHandler))
	assert.ErrorContains(t, err, "caFile")
}

// Nodes accept the same NVMe options as a StorageClass, and only NVMe volumes receive these
// options.
func TestNodesAcceptNVMeOptionsOfTheClass(t *testing.T) {
	v := volume.Volume{UUID: lvolUUID, SizeBytes: 4 * mib, Store: "lvs0"}
	contextOf := func(targetType string, c class.Class) map[string]string {
		cfg, err := config.Parse([]byte(`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetAddr": "192.0.2.1", "targetType": "` + targetType + `"}]}`))
		require.NoError(t, err)
		return volumeContext(cfg.Nodes[0], v, c, volume.Origin{})
	}
	values := []string{"", "-2", "-1", "0", "1", "15", "16", "1024", "1025", "3600", "3601", "86400", "86401", "true", "false", "x", "1,2", "01"}
	for _, key := range connect.OptionKeys {
		allowed := 0
		for _, value := range values {
			c, err := class.Parse(map[string]string{key: value}, nil)
			m := contextOf("nvme-tcp", class.Class{NVMe: map[string]string{key: value}})
			e, nodeErr := connect.ParseExport(m, nil)
			require.Equal(t, err == nil, nodeErr == nil, "%s=%q: class: %v, node: %v", key, value, err, nodeErr)
			if err == nil {
				allowed++
				assert.Equal(t, map[string]string{key: value}, c.NVMe)
				assert.Equal(t, c.NVMe, e.Options)
				assert.NotContains(t, contextOf("iscsi", c), key)
			}
		}
		assert.NotZero(t, allowed, key)
	}
}

// The volume context contains the parameters that nodes need, under the keys that nodes read.
func TestVolumeContextContainsParametersForNodes(t *testing.T) {
	given := map[string]string{
		request.KeyFSType: "btrfs", request.KeyMkfsOptions: "-d single", request.KeyFilesystemUUID: "volume",
		request.KeyEncryption: request.EncryptionLUKS2, request.KeyEncryptionDiscards: "true",
	}
	wanted, err := class.Parse(given, nil)
	require.NoError(t, err)
	got := volumeContext(config.Target{Name: "a", TargetType: config.TargetNVMeTCP}, volume.Volume{UUID: lvolUUID}, wanted, volume.Origin{})
	for key, value := range given {
		assert.Equal(t, value, got[key], key)
	}
	wanted, err = class.Parse(map[string]string{"thin": "false", "placement": "binpack"}, nil)
	require.NoError(t, err)
	assert.Empty(t, wanted.ForNodes, "parameters that only the controller needs")
}
