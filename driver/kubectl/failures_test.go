package kubectl

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If the API server refuses any list that a command reads, or responds with anything but an object,
// the command fails, and its error names the list.
func TestUnreadableListsFailTheCommand(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, a *api) (int, error){
		"volumes": func(ctx context.Context, a *api) (int, error) {
			all, err := a.Volumes(ctx, driver, Filter{})
			return len(all), err
		},
		"snapshots": func(ctx context.Context, a *api) (int, error) {
			all, err := a.Snapshots(ctx, driver, "")
			return len(all), err
		},
		"capacities": func(ctx context.Context, a *api) (int, error) {
			all, err := a.Capacities(ctx, driver)
			return len(all), err
		},
		"nodes":      func(ctx context.Context, a *api) (int, error) { all, err := a.Nodes(ctx, driver); return len(all), err },
		"everything": func(ctx context.Context, a *api) (int, error) { text, err := a.everything(ctx); return len(text), err },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.withVolumes()
			a.withSnapshots(`{"spec": {"driver": "csi.spdk.io", "source": {"volumeHandle": "` + idA + `"}}, "status": {"snapshotHandle": "` + snapA + `"}}`)
			a.change(func() { a.lists[capacitiesPath] = []string{`{"storageClassName": "fast", "nodeTopology": {}}`} })
			n, err := do(t.Context(), a)
			require.NoError(t, err)
			require.Positive(t, n)
			paths := slices.Sorted(maps.Keys(a.queries))
			require.NotEmpty(t, paths)
			for _, path := range paths {
				a.change(func() { a.fails[path] = "Error from server (Forbidden): no" })
				n, err := do(t.Context(), a)
				require.ErrorContains(t, err, path)
				require.ErrorContains(t, err, "Forbidden")
				assert.Zero(t, n)
				a.change(func() { delete(a.fails, path); a.objects[path] = "<html>" })
				if path == groupsPath {
					continue // always responds with the groups
				}
				n, err = do(t.Context(), a)
				require.ErrorContains(t, err, path)
				require.ErrorContains(t, err, "not the response of a Kubernetes API")
				assert.Zero(t, n)
				a.change(func() { delete(a.objects, path) })
			}
			a.change(func() { clear(a.objects) })
			_, err = do(t.Context(), a)
			require.NoError(t, err)
		})
	}
}

// A wide table has all columns. A table without live information has only the columns with data
// from Kubernetes.
func TestWideTableHasAllColumns(t *testing.T) {
	a := newAPI(t)
	a.withVolumes()
	all, err := a.Volumes(t.Context(), driver, Filter{Namespace: "shop"})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, PrintVolumes(&out, Table, false, all))
	assert.Equal(t, `NAMESPACE   CLAIM   VOLUME   TARGET      LVSTORE   SIZE   STATUS   NODES
shop        data    pv-a     storage-1   lvs0      1Gi    Bound    worker-1
shop        db      pv-b     storage-2   lvs0      1Gi    Bound    worker-2(attaching)
`, out.String())
	out.Reset()
	require.NoError(t, PrintVolumes(&out, Wide, false, all[:1]))
	assert.Equal(t, `NAMESPACE   CLAIM   VOLUME   TARGET      LVSTORE   SIZE   STATUS   NODES      CLASS   MODE         ACCESS          TRANSPORT   ID
shop        data    pv-a     storage-1   lvs0      1Gi    Bound    worker-1   fast    Filesystem   ReadWriteOnce   TCP         `+idA+`
`, out.String())
}

// The unit of ages changes at two minutes, two hours and two days.
func TestAgeUnitChanges(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for d, want := range map[time.Duration]string{
		0: "0s", 2*time.Minute - 1: "119s", 2 * time.Minute: "2m", 2*time.Hour - 1: "119m", 2 * time.Hour: "2h", 48*time.Hour - 1: "47h", 48 * time.Hour: "2d", 72 * time.Hour: "3d",
	} {
		assert.Equal(t, want, age(now, new(now.Add(-d))))
	}
}

func TestRepeatedWordsAreCounted(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a,b": {"a", "b"}, "a(2),b,c(3)": {"a", "a", "b", "c", "c", "c"}} {
		assert.Equal(t, want, counted(words))
	}
}

func TestExitCodeIsReported(t *testing.T) {
	assert.EqualError(t, Status(3), "the command ended with exit code 3")
}
