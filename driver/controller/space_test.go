package controller

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/metrics"
)

// The metrics include each lvstore's space and the total size of its thin volumes, but omit
// lvstores that no longer exist.
func TestMetricsContainLvstoreSpace(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	b.withCredentials(t)
	m := metrics.New("test")
	b.Observe(m)
	scrape := func() string {
		b.measureSpace(t.Context())
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		require.Equal(t, 200, w.Code)
		return w.Body.String()
	}
	first := scrape()
	assert.Contains(t, first, `spdk_csi_lvstore_promised_bytes{lvstore="lvs0",target="t0"} 0`)
	assert.Contains(t, first, `spdk_csi_lvstore_total_bytes{lvstore="lvs0",target="t0"} 4.`)
	v := b.create(t, "pvc-1", 64*mib)
	assert.Contains(t, scrape(), `spdk_csi_lvstore_promised_bytes{lvstore="lvs0",target="t0"} 6.7108864e+07`)
	assert.Contains(t, first, `spdk_csi_lvstore_longest_chain_snapshots{lvstore="lvs0",target="t0"} 0`)
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
	assert.Contains(t, scrape(), `spdk_csi_lvstore_promised_bytes{lvstore="lvs0",target="t0"} 0`)

	m.Lvstores("t0", []metrics.Lvstore{{Name: "gone"}})
	assert.NotContains(t, scrape(), "gone")
	target.replace(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.measureSpace(ctx)
	b.credentialsFile = ""
	assert.Contains(t, scrape(), `lvstore="lvs0"`, "the last values stay")
}

// Snapshots and clones of a volume lengthen the chain below it.
func TestMetricsContainTheLongestChain(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	b.create(t, "pvc-other", 8*mib)
	v := b.create(t, "pvc-1", 8*mib)
	for i := range 3 {
		_, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: fmt.Sprint("snap", i), SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
		require.NoError(t, err)
	}
	b = newTestController(t, target) // this controller reads the lvstore for the first time
	b.withCredentials(t)
	m := metrics.New("test")
	b.Observe(m)
	b.measureSpace(t.Context())
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	assert.Contains(t, w.Body.String(), `spdk_csi_lvstore_longest_chain_snapshots{lvstore="lvs0",target="t0"} 3`)
}

// If the sizes of an lvstore's volumes cannot be read, the call fails with a retryable code. The
// code Internal is not retryable, and would make csi-provisioner choose another node for the pod.
func TestUnreadableSizesAreRetryable(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	s, err := b.Controller.targets.open("t0", map[string]config.Credential{"t0": {Name: "t0", Username: user, Password: password}})
	require.NoError(t, err)
	stores, err := s.Stores(t.Context())
	require.NoError(t, err)
	target.loseReplyOf("bdev_lvol_get_lvols")
	_, err = s.Usage(t.Context(), stores[0])
	require.ErrorContains(t, err, "the sizes of the volumes in lvstore lvs0 could not be read")
	assert.Equal(t, codes.Unavailable, driver.Code(err))
	_, err = s.Usage(t.Context(), stores[0])
	require.NoError(t, err)
}
