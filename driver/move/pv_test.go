package move

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
)

const onePV = `{"kind": "PersistentVolume", "apiVersion": "v1",
	"metadata": {"name": "pv-1", "uid": "x", "labels": {"a": "b"}, "annotations": {"pv.kubernetes.io/provisioned-by": "csi.spdk.io", "volume.kubernetes.io/provisioner-deletion-secret-name": "s", "other": "y"}},
	"spec": {"csi": {"driver": "csi.spdk.io", "volumeHandle": "old:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", "volumeAttributes": {"targetAddr": "192.0.2.1", "mine": "kept", "number": 7}},
		"capacity": {"storage": "1Gi"}, "nodeAffinity": {"required": {}}, "claimRef": {"namespace": "ns", "name": "claim", "uid": "z"}, "volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce"]}}`

func TestPersistentVolumeIsParsed(t *testing.T) {
	p, err := ParsePV([]byte(onePV), "csi.spdk.io")
	require.NoError(t, err)
	assert.Equal(t, "pv-1", p.Name)
	assert.Equal(t, original, p.Volume)
	assert.Equal(t, map[string]string{"targetAddr": "192.0.2.1", "mine": "kept", "number": ""}, p.Context)
	for mode, want := range map[string]bool{`"volumeMode": "Filesystem"`: true, `"volumeMode": "Block"`: false, `"other": "x"`: true} {
		p, err := ParsePV([]byte(strings.Replace(onePV, `"volumeMode": "Filesystem"`, mode, 1)), "csi.spdk.io")
		require.NoError(t, err)
		assert.Equal(t, want, p.Filesystem, mode)
	}
	for old, c := range map[string]struct{ now, says string }{
		`{"kind"`:                     {`"kind"`, ""},
		`"kind": "PersistentVolume"`:  {`"kind": "PersistentVolumeClaim"`, "expected one object"},
		`"name": "pv-1"`:              {`"nam": "pv-1"`, "expected one object"},
		`"csi"`:                       {`"nfs"`, "not a volume of a CSI driver"},
		`"driver": "csi.spdk.io"`:     {`"driver": "other"`, "belongs to driver other, not csi.spdk.io"},
		`"old:8e2dcb9d`:               {`"old:`, "pv-1"},
		`"volumeHandle": "old:8e2dcb`: {`"volumeHandl": "old:8e2dcb`, "pv-1"},
	} {
		_, err := ParsePV([]byte(strings.Replace(onePV, old, c.now, 1)), "csi.spdk.io")
		require.ErrorIs(t, err, ErrPV, c.now)
		require.ErrorContains(t, err, c.says)
	}
}

// The PersistentVolume of a copy refers to the copy, and keeps the fields that users and sidecars
// need from the original's PersistentVolume.
func TestPersistentVolumeOfTheCopyIsPrinted(t *testing.T) {
	p, err := ParsePV([]byte(onePV), "csi.spdk.io")
	require.NoError(t, err)
	of := func(r Result) (pv struct {
		Kind     string
		Metadata struct {
			Name                string
			Labels, Annotations map[string]string
		}
		Spec struct {
			CSI struct {
				Driver, VolumeHandle string
				VolumeAttributes     map[string]string
			}
			Capacity, ClaimRef map[string]string
			NodeAffinity       *struct {
				Required struct {
					NodeSelectorTerms []struct {
						MatchExpressions []struct {
							Key, Operator string
							Values        []string
						}
					}
				}
			}
			AccessModes []string
		}
	}) {
		text, err := p.For(r)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &pv))
		return pv
	}
	v := &csi.Volume{VolumeId: copied.String(), CapacityBytes: 1 << 30, VolumeContext: map[string]string{connect.KeyTargetAddr: "192.0.2.9"}}
	pv := of(Result{Volume: v})
	assert.Equal(t, []string{"PersistentVolume", "pvc-" + copied.UUID, "csi.spdk.io", copied.String()}, []string{pv.Kind, pv.Metadata.Name, pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle})
	assert.Equal(t, map[string]string{"a": "b"}, pv.Metadata.Labels)
	assert.Equal(t, map[string]string{"pv.kubernetes.io/provisioned-by": "csi.spdk.io", "volume.kubernetes.io/provisioner-deletion-secret-name": "s"}, pv.Metadata.Annotations)
	assert.Equal(t, map[string]string{"targetAddr": "192.0.2.9", "mine": "kept", "number": "", request.KeyMayFormat: "false"}, pv.Spec.CSI.VolumeAttributes)
	assert.Equal(t, map[string]string{"storage": "1073741824"}, pv.Spec.Capacity)
	assert.Equal(t, map[string]string{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "claim"}, pv.Spec.ClaimRef)
	assert.Nil(t, pv.Spec.NodeAffinity, "every node reaches the copy")
	assert.Equal(t, []string{"ReadWriteOnce"}, pv.Spec.AccessModes)

	v.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"zone": "x", "rack": "7"}}}
	pv = of(Result{Volume: v, Empty: true})
	assert.Equal(t, "true", pv.Spec.CSI.VolumeAttributes[request.KeyMayFormat])
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	require.Len(t, terms, 1)
	require.Len(t, terms[0].MatchExpressions, 2)
	assert.Equal(t, []string{"rack", "In", "7"}, append([]string{terms[0].MatchExpressions[0].Key, terms[0].MatchExpressions[0].Operator}, terms[0].MatchExpressions[0].Values...))
	assert.Equal(t, "zone", terms[0].MatchExpressions[1].Key)

	_, err = p.For(Result{Volume: &csi.Volume{VolumeId: "no id"}})
	require.Error(t, err)
}
