package class

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClassParametersAreParsed(t *testing.T) {
	c, err := Parse(map[string]string{
		"fsType": "xfs", "target": "t0", "lvstore": "lvs0", "thin": "false", "clearMethod": "write_zeroes", "csi.storage.k8s.io/pvc/name": "x",
	}, nil)
	require.NoError(t, err)
	assert.Equal(t, Class{FSType: "xfs", ForNodes: map[string]string{"fsType": "xfs"}, Targets: []string{"t0"}, Stores: []string{"lvs0"}, Thick: true, Clear: ClearWriteZeroes}, c)
	c, err = Parse(map[string]string{"fstype": "ext4"}, map[string]string{})
	require.NoError(t, err)
	assert.Equal(t, Class{FSType: "ext4", ForNodes: map[string]string{"fsType": "ext4"}}, c)
	c, err = Parse(map[string]string{"target": "t0, t1", "lvstore": "a,b", "targetLabels": "disk=nvme, rack=", "placement": "most-free"}, nil)
	require.NoError(t, err)
	assert.Equal(t, Class{Targets: []string{"t0", "t1"}, Stores: []string{"a", "b"}, TargetLabels: map[string]string{"disk": "nvme", "rack": ""}, Strategy: MostFree}, c)
	for key, value := range map[string]string{"target": "t0,", "lvstore": ",a", "targetLabels": "disk", "placement": "best"} {
		_, err := Parse(map[string]string{key: value}, nil)
		require.ErrorIs(t, err, ErrParameter, key)
		assert.ErrorContains(t, err, key)
	}
	_, err = Parse(map[string]string{"targetLabels": "disk=a,disk=b"}, nil)
	require.ErrorIs(t, err, ErrParameter)
	for key, value := range map[string]string{"fsType": "f2fs", "target": "", "lvstore": "", "thin": "yes", "clearMethod": "WRITE_ZEROES", "Lvstore": "x", "csi.example/x": "y"} {
		_, err := Parse(map[string]string{key: value}, nil)
		require.ErrorIs(t, err, ErrParameter, key)
		assert.ErrorContains(t, err, key)
	}
}

func TestFilesystemParametersAreParsed(t *testing.T) {
	c, err := Parse(map[string]string{"fsType": "btrfs", "mkfsOptions": "-d single", "filesystemUUID": "volume"}, nil)
	require.NoError(t, err)
	assert.Equal(t, Class{FSType: "btrfs", MkfsOptions: "-d single", VolumeUUID: true, ForNodes: map[string]string{"fsType": "btrfs", "mkfsOptions": "-d single", "filesystemUUID": "volume"}}, c)
}

func TestEncryptionParametersAreParsed(t *testing.T) {
	c, err := Parse(map[string]string{"encryption": "luks2", "encryptionDiscards": "true"}, nil)
	require.NoError(t, err)
	assert.Equal(t, Class{Encryption: LUKS2, EncryptionDiscards: true, ForNodes: map[string]string{"encryption": "luks2", "encryptionDiscards": "true"}}, c)
	c, err = Parse(map[string]string{"encryption": "luks2", "encryptionDiscards": "false"}, nil)
	require.NoError(t, err)
	assert.Equal(t, Class{Encryption: LUKS2, ForNodes: map[string]string{"encryption": "luks2", "encryptionDiscards": "false"}}, c)
	for _, p := range []map[string]string{{"encryption": "luks1"}, {"encryption": ""}, {"encryption": "luks2", "encryptionDiscards": "yes"}, {"encryptionDiscards": "true"}} {
		_, err := Parse(p, nil)
		require.ErrorIs(t, err, ErrParameter, p)
		assert.ErrorContains(t, err, "encryption")
	}
}

func TestReplicaParametersAreParsed(t *testing.T) {
	for value, want := range map[string]int{"1": 1, "2": 2} {
		c, err := Parse(map[string]string{"replicas": value}, nil)
		require.NoError(t, err)
		assert.Equal(t, Class{Replicas: want}, c)
	}
	c, err := Parse(map[string]string{"replicas": "2", "replicaSpread": "zone"}, nil)
	require.NoError(t, err)
	assert.Equal(t, Class{Replicas: 2, ReplicaSpread: "zone"}, c)
	for _, p := range []map[string]string{{"replicas": "3"}, {"replicas": "0"}, {"replicas": ""}, {"replicas": "two"}, {"replicas": "2", "replicaSpread": ""}, {"replicaSpread": "zone"}, {"replicas": "1", "replicaSpread": "zone"}} {
		_, err := Parse(p, nil)
		require.ErrorIs(t, err, ErrParameter, p)
		assert.ErrorContains(t, err, "replica")
	}
}

func TestClearMethodsAreParsed(t *testing.T) {
	for value, want := range map[string]Clear{
		"zeroes": ClearZeroes, "unmap": ClearZeroes, "write_zeroes": ClearWriteZeroes,
		"unmap-may-expose-deleted-data": ClearUnmap, "none-exposes-deleted-data": ClearNone,
	} {
		c, err := Parse(map[string]string{"clearMethod": value}, nil)
		require.NoError(t, err, value)
		assert.Equal(t, want, c.Clear, value)
	}
}

func TestQoSLimitsAreParsed(t *testing.T) {
	c, err := Parse(map[string]string{"qosIOPS": "5000", "qosMiBPerSecond": "100"}, map[string]string{"qosIOPS": "0", "qosReadMiBPerSecond": "7", "qosWriteMiBPerSecond": "8"})
	require.NoError(t, err)
	assert.Equal(t, Limits{IOPS: new(uint64(0)), MiBPerSecond: new(uint64(100)), ReadMiBPerSecond: new(uint64(7)), WriteMiBPerSecond: new(uint64(8))}, c.Limits, "those of the VolumeAttributesClass count more")
	for key, value := range map[string]string{"qosIOPS": "1500", "qosMiBPerSecond": "-1", "qosReadMiBPerSecond": "1.5", "qosWriteMiBPerSecond": "99999999999999", "iops": "1"} {
		for _, parse := range []func() error{
			func() error { _, err := Parse(map[string]string{key: value}, nil); return err },
			func() error { _, err := Parse(nil, map[string]string{key: value}); return err },
		} {
			err := parse()
			require.ErrorIs(t, err, ErrParameter)
			assert.ErrorContains(t, err, key)
		}
	}
	_, err = ParseMutable(map[string]string{"thin": "true"})
	require.ErrorIs(t, err, ErrParameter, "what is decided when a volume is made cannot change")
}

func TestNVMeOptionsAreParsed(t *testing.T) {
	all := map[string]string{
		"ctrl_loss_tmo": "-1", "reconnect_delay": "1", "keep_alive_tmo": "3600", "fast_io_fail_tmo": "86400",
		"nr_io_queues": "4", "queue_size": "1024", "hdr_digest": "true", "data_digest": "false",
	}
	c, err := Parse(all, nil)
	require.NoError(t, err)
	assert.Equal(t, Class{NVMe: all}, c)
	for key, values := range map[string][]string{
		"ctrl_loss_tmo":    {"", "0", "-2", "86401", "1s", "+5", "05"},
		"reconnect_delay":  {"0", "-1", "3601"},
		"keep_alive_tmo":   {"0", "-1", "3601"},
		"fast_io_fail_tmo": {"0", "-2", "86401"},
		"nr_io_queues":     {"", "0", "1025"},
		"queue_size":       {"15", "1025", "16,hostnqn=x"},
		"hdr_digest":       {"", "yes", "1"},
		"data_digest":      {"True"},
	} {
		for _, v := range values {
			_, err := Parse(map[string]string{key: v}, nil)
			require.ErrorIs(t, err, ErrParameter, "%s=%q", key, v)
			assert.ErrorContains(t, err, key+" is "+strconv.Quote(v)+": use ")
		}
	}
	for _, contradiction := range []map[string]string{
		{"ctrl_loss_tmo": "30", "reconnect_delay": "31"}, {"ctrl_loss_tmo": "30", "fast_io_fail_tmo": "31"},
	} {
		_, err := Parse(contradiction, nil)
		require.ErrorIs(t, err, ErrParameter)
		assert.ErrorContains(t, err, "longer than ctrl_loss_tmo (30 s)")
	}
	for _, consistent := range []map[string]string{
		{"ctrl_loss_tmo": "30", "reconnect_delay": "30", "fast_io_fail_tmo": "30"}, {"ctrl_loss_tmo": "30", "fast_io_fail_tmo": "-1"}, {"reconnect_delay": "3600"},
	} {
		_, err := Parse(consistent, nil)
		require.NoError(t, err)
	}
	_, err = ParseMutable(map[string]string{"queue_size": "64"})
	require.ErrorIs(t, err, ErrParameter, "a connection keeps its options")
}

func TestSnapshotParametersAreRejected(t *testing.T) {
	require.NoError(t, CheckSnapshot(nil))
	require.NoError(t, CheckSnapshot(map[string]string{"fsType": "ext4", "csi.storage.k8s.io/snapshotter-secret-name": "x"}))
	err := CheckSnapshot(map[string]string{"fast": "yes"})
	require.ErrorIs(t, err, ErrParameter)
	assert.ErrorContains(t, err, `"fast"`)
}

// The manual describes every parameter once, with a valid example.
func TestReferenceDescribesEveryParameter(t *testing.T) {
	var listed []string
	for _, d := range Reference() {
		listed = append(listed, d.Name)
		assert.NotEmpty(t, d.Values, d.Name)
		assert.NotEmpty(t, d.Meaning, d.Name)
		given := map[string]string{d.Name: d.Example}
		if d.Name == "encryptionDiscards" {
			given["encryption"] = "luks2"
		}
		if d.Name == "replicaSpread" {
			given["replicas"] = "2"
		}
		_, err := Parse(given, nil)
		require.NoError(t, err, d.Name)
		_, err = ParseMutable(map[string]string{d.Name: d.Example})
		assert.Equal(t, d.Mutable, err == nil, d.Name)
	}
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(listed))), len(listed), "a name is listed twice")
}
