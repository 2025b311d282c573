package kubernetes

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestClaimsOfTheDriverAreListed(t *testing.T) {
	a := newAPI(t)
	a.change(func() {
		a.lists = map[string][]any{volumesPath: {
			object(`{"metadata": {"name": "pv-1"}, "status": {"phase": "Bound"}, "spec": {"claimRef": {"namespace": "apps", "name": "data", "uid": "u1"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:1", "volumeAttributes": {"lvstore": "lvs0"}}}}`),
			object(`{"metadata": {"name": "other"}, "status": {"phase": "Bound"}, "spec": {"claimRef": {"namespace": "apps", "name": "x"}, "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "t0:1"}}}`),
			object(`{"metadata": {"name": "free"}, "status": {"phase": "Available"}, "spec": {"csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:2"}}}`),
			object(`{"metadata": {"name": "odd"}, "status": {"phase": "Bound"}, "spec": {"csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:6"}}}`),
			object(`{"metadata": {"name": "left"}, "status": {"phase": "Released"}, "spec": {"claimRef": {"namespace": "apps", "name": "left"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:3"}}}`),
			object(`{"metadata": {"name": "going", "deletionTimestamp": "2026-11-28T10:00:00Z"}, "status": {"phase": "Bound"}, "spec": {"claimRef": {"namespace": "apps", "name": "going"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:4"}}}`),
			object(`{"metadata": {"name": "pv-2"}, "status": {"phase": "Bound"}, "spec": {"claimRef": {"namespace": "db", "name": "data", "uid": "u2"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": "t1:5"}}}`),
		}}
	})
	claims, err := a.client.Claims(t.Context(), "csi.spdk.io")
	require.NoError(t, err)
	assert.Equal(t, []Claim{{"apps", "data", "u1", "t0:1", "lvs0"}, {"db", "data", "u2", "t1:5", ""}}, claims)
	a.change(func() { a.status = http.StatusForbidden })
	_, err = a.client.Claims(t.Context(), "csi.spdk.io")
	require.ErrorIs(t, err, ErrForbidden)
}

func TestEventIsCreatedForTheClaim(t *testing.T) {
	at := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	var stored []corev1.Event
	status := http.StatusCreated
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "POST /api/v1/namespaces/apps/events", r.Method+" "+r.URL.Path)
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var e corev1.Event
		assert.NoError(t, json.Unmarshal(text, &e))
		stored = append(stored, e)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	a := newAPI(t)
	a.client.server = server.URL
	e := Event{
		Name: "data.1", Claim: Claim{Namespace: "apps", Name: "data", UID: "u1"}, Warning: true, Reason: "LvstoreFull", Message: "no \"space\"",
		Component: "csi.spdk.io", Instance: "controller-1", Time: at,
	}
	require.NoError(t, a.client.CreateEvent(t.Context(), e))
	require.Len(t, stored, 1)
	got := stored[0]
	assert.Equal(t, []string{"apps", "data.1"}, []string{got.Namespace, got.Name})
	assert.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "apps", Name: "data", UID: "u1"}, got.InvolvedObject)
	assert.Equal(t, []string{"Warning", "LvstoreFull", "no \"space\""}, []string{got.Type, got.Reason, got.Message})
	assert.Equal(t, []string{"csi.spdk.io", "csi.spdk.io", "controller-1"}, []string{got.Source.Component, got.ReportingController, got.ReportingInstance})
	assert.True(t, got.FirstTimestamp.Time.Equal(at) && got.LastTimestamp.Time.Equal(at))
	assert.EqualValues(t, 1, got.Count)
	e.Warning = false
	require.NoError(t, a.client.CreateEvent(t.Context(), e))
	assert.Equal(t, "Normal", stored[1].Type)
	status = http.StatusConflict
	require.ErrorIs(t, a.client.CreateEvent(t.Context(), e), ErrChanged)
}
