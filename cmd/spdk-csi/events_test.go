package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestInvalidEventFlagsAreRejected(t *testing.T) {
	newTarget(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	endpoint := "--endpoint=unix://" + filepath.Join(t.TempDir(), "csi.sock")
	for want, args := range map[string][]string{
		"--volume-events needs --controller":               {"--node", "--nodeid=a", "--volume-events=2m"},
		"--volume-events 10ms: use 1s or more":             {"--controller", "--volume-events=10ms"},
		"--volume-events: no access to the Kubernetes API": {"--controller", "--volume-events=2m", endpoint},
	} {
		require.ErrorContains(t, execute(t.Context(), args...), want)
	}
}

// With --volume-events, a claim whose volume does not exist on the target gets an Event.
func TestControllerWritesEvents(t *testing.T) {
	newTarget(t)
	handle := "t0:" + uuid.NewString()
	created := make(chan corev1.Event, 8)
	dir := apiServerOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/api/v1/persistentvolumes":
			_, _ = w.Write([]byte(`{"items": [{"metadata": {"name": "pv-1"}, "status": {"phase": "Bound"}, "spec": {"claimRef": {"namespace": "apps", "name": "data", "uid": "u1"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": "` + handle + `"}}}]}`))
		case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/apps/events":
			var e corev1.Event
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&e))
			created <- e
			w.WriteHeader(http.StatusCreated)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	var log lockedBuffer
	serving(t, &log, t.TempDir(), "--controller", "--volume-events=1s", "--service-account-dir="+dir)
	select {
	case e := <-created:
		assert.Equal(t, []string{"data", "Warning", "VolumeMissing"}, []string{e.InvolvedObject.Name, e.Type, e.Reason})
		assert.Contains(t, e.Message, "does not have this volume")
	case <-time.After(time.Minute):
		t.Fatal("no Event: ", log.String())
	}
}
