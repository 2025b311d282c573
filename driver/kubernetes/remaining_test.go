package kubernetes

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRemainingVolumesAndSnapshotsAreListed(t *testing.T) {
	a := newAPI(t)
	const volumes, snapshots = "/api/v1/persistentvolumes", "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
	a.change(func() {
		a.lists = map[string][]any{volumes: {
			object(`{"metadata": {"name": "pv-1"}, "spec": {"csi": {"driver": "csi.spdk.io"}}}`), object(`{"metadata": {"name": "other"}, "spec": {"csi": {"driver": "ebs.csi.aws.com"}}}`),
			object(`{"metadata": {"name": "local"}, "spec": {}}`), object(`{"metadata": {"name": "pv-2"}, "spec": {"csi": {"driver": "csi.spdk.io"}}}`),
		}}
	})
	left, err := a.client.Remaining(t.Context(), "csi.spdk.io")
	require.NoError(t, err, "a cluster without the API of snapshots has none")
	assert.Equal(t, Remaining{Volumes: []string{"pv-1", "pv-2"}}, left)
	a.change(func() {
		a.lists[snapshots] = []any{object(`{"metadata": {"name": "other"}, "spec": {"driver": "ebs.csi.aws.com"}}`), object(`{"metadata": {"name": "snap-1"}, "spec": {"driver": "csi.spdk.io"}}`)}
	})
	left, err = a.client.Remaining(t.Context(), "csi.spdk.io")
	require.NoError(t, err)
	assert.Equal(t, Remaining{Volumes: []string{"pv-1", "pv-2"}, Snapshots: []string{"snap-1"}}, left)

	// Remaining fails if a list cannot be read; it must not treat the list as empty.
	a.change(func() { delete(a.lists, volumes) })
	_, err = a.client.Remaining(t.Context(), "csi.spdk.io")
	require.ErrorIs(t, err, ErrNotFound)
	a.change(func() { a.status = http.StatusForbidden })
	_, err = a.client.Remaining(t.Context(), "csi.spdk.io")
	require.ErrorIs(t, err, ErrForbidden)
}
