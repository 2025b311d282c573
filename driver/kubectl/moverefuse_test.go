package kubectl

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMoveRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *moveCluster, m *Move)
		is     error
		want   string
	}{
		"no claim":      {func(c *moveCluster, _ *Move) { delete(c.objects, claimPath) }, ErrNoMove, "claim shop/data does not exist"},
		"no parameters": {func(_ *moveCluster, m *Move) { m.Parameters = nil }, ErrNotMovable, "--parameter is missing"},
		"not bound":     {func(c *moveCluster, _ *Move) { delete(c.objects[claimPath], "status") }, ErrNotMovable, "not bound"},
		"being deleted": {func(c *moveCluster, _ *Move) { c.objects[claimPath].set("now", "metadata", "deletionTimestamp") }, ErrNotMovable, "being deleted"},
		"other claim":   {func(c *moveCluster, _ *Move) { c.objects[oldPath].set("x", "spec", "claimRef", "uid") }, ErrNotMovable, "belongs to another claim"},
		"no volume":     {func(c *moveCluster, _ *Move) { delete(c.objects, oldPath) }, ErrNotMovable, "pv-a does not exist"},
		"other driver":  {func(_ *moveCluster, m *Move) { m.Driver = "x" }, ErrNotMovable, "does not belong to driver x"},
		"replicated": {func(c *moveCluster, _ *Move) {
			c.objects[oldPath].set("replicated:11111111-1111-4111-8111-111111111111", "spec", "csi", "volumeHandle")
		}, ErrNotMovable, "it is replicated"},
		"created by hand": {func(c *moveCluster, _ *Move) {
			c.objects[oldPath].set("11111111-1111-4111-8111-111111111111", "spec", "csi", "volumeHandle")
		}, ErrNotMovable, "does not name the storage server"},
		"used by a pod": {func(c *moveCluster, _ *Move) { c.startPod() }, ErrInUse, "in use by pod user. Stop the pods"},
		"used as an ephemeral volume": {func(c *moveCluster, m *Move) {
			c.put(podsPath(moveNS)+"/da", `{"metadata": {"name": "da"}, "spec": {"volumes": [{"name": "x"}, {"name": "ta", "ephemeral": {}}]}}`)
			c.objects[strings.TrimSuffix(claimPath, "data")+"da-ta"] = c.objects[claimPath]
			c.objects[claimPath].set("da-ta", "metadata", "name")
			m.Claim = "da-ta"
		}, ErrInUse, "in use by pod da"},
		"attached":         {func(c *moveCluster, _ *Move) { c.put(attachmentsPath+"/1", attachment("1", "pv-a", "worker-1", true)) }, ErrInUse, "in use by node worker-1"},
		"keys are missing": {func(_ *moveCluster, m *Move) { m.Parameters = map[string]string{"authentication": "dhchap"} }, ErrNotMovable, "--keys-secret"},
		"no node plugin":   {func(_ *moveCluster, m *Move) { m.DaemonSet = "x" }, nil, "DaemonSet x in namespace spdkcsi"},
		"no deployment":    {func(_ *moveCluster, m *Move) { m.Controller = "pod/x" }, nil, "needs the controller's Deployment"},
		"the Job fails":    {func(c *moveCluster, _ *Move) { c.storage[copyID] = &simVolume{} }, nil, "failed: spdk-csi: already copied. Remove the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMoveCluster(t)
			m := c.move()
			test.change(c, &m)
			stored := len(c.objects)
			err := m.Run(t.Context())
			require.ErrorContains(t, err, test.want)
			if test.is != nil {
				require.ErrorIs(t, err, test.is)
			}
			for _, call := range c.log {
				assert.Regexp(t, `^create .*/(configmaps|jobs)$`, call, "nothing else is changed")
			}
			assert.GreaterOrEqual(t, len(c.objects), stored)
		})
	}
}

// What has changed since the volume was copied is checked before the claim is deleted.
func TestClaimIsNotDeletedUnlessItCanBeReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *moveCluster, m *Move)
		want   string
	}{
		"the claim has grown": {func(c *moveCluster, _ *Move) {
			c.objects[claimPath].set(map[string]any{"requests": map[string]any{"storage": "2Gi"}}, "spec", "resources")
		}, "the claim requests 2Gi, and the copy has 1Gi"},
		"no size":                    {func(c *moveCluster, _ *Move) { c.objects[claimPath].set(nil, "spec", "resources") }, "the sizes cannot be read"},
		"other class":                {func(c *moveCluster, _ *Move) { c.objects[claimPath].set("slow", "spec", "storageClassName") }, "StorageClasses differ"},
		"other attributes":           {func(c *moveCluster, _ *Move) { c.objects[claimPath].set("gold", "spec", "volumeAttributesClassName") }, "VolumeAttributesClasses differ"},
		"other mode":                 {func(c *moveCluster, _ *Move) { c.objects[claimPath].set("Block", "spec", "volumeMode") }, "volume modes differ"},
		"other access":               {func(c *moveCluster, _ *Move) { c.objects[claimPath].set([]any{"ReadOnlyMany"}, "spec", "accessModes") }, "lacks access modes"},
		"deleted by another program": {func(c *moveCluster, _ *Move) { c.objects[claimPath].set("now", "metadata", "deletionTimestamp") }, "another user or program is deleting"},
		"gone":                       {func(c *moveCluster, _ *Move) { delete(c.objects, claimPath) }, "was deleted, but not by this command"},
		"the original is given away": {func(c *moveCluster, _ *Move) { c.objects[oldPath].set("x", "spec", "claimRef", "uid") }, "belongs to another claim"},
		"the original's PV is gone":  {func(c *moveCluster, _ *Move) { delete(c.objects, oldPath) }, "is deleted, or is being deleted"},
		"the copy's PV is another's": {func(c *moveCluster, _ *Move) {
			c.put(copyPath, pv("pvc-"+copyUUID, "lab", claimName, copyID, ""))
			c.objects[copyPath].set(map[string]any{"driver": "csi.spdk.io", "volumeHandle": copyID}, "spec", "csi")
		}, `spec.claimRef.namespace is "lab", not "shop"`},
		"used again":                 {func(c *moveCluster, _ *Move) { c.startPod() }, "in use by pod user"},
		"not locked":                 {func(c *moveCluster, _ *Move) { c.storage[idA].lockedBy = "" }, "nodes could have attached the original"},
		"locked by another move":     {func(c *moveCluster, _ *Move) { c.storage[idA].lockedBy = "33333333-3333-4333-8333-333333333333" }, "nodes could have attached the original"},
		"the storage server is down": {func(c *moveCluster, _ *Move) { c.down = true }, "storage server storage-1 does not show"},
		"Retain is refused": {func(c *moveCluster, m *Move) {
			m.direct = func(ctx context.Context, verb, path string, body []byte) ([]byte, error) {
				if verb == "replace" && path == oldPath {
					return nil, errors.New("forbidden")
				}
				return c.request(ctx, verb, path, body)
			}
		}, "does not get the reclaim policy Retain, so claim shop/data was not deleted: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMoveCluster(t)
			m := c.move()
			c.interrupt(4, interruption{kills: true}) // after the copy is recorded
			require.ErrorIs(t, m.Run(t.Context()), errInterrupted)
			c.interrupt(0, interruption{})
			require.NotEmpty(t, c.objects[m.recordPath()].text("data", keyCopy))
			test.change(c, &m)
			require.ErrorContains(t, m.Run(t.Context()), test.want)
			for _, call := range c.log {
				assert.NotEqual(t, "delete "+claimPath, call)
			}
		})
	}
}

func TestPreparedMoveIsContinued(t *testing.T) {
	c := newMoveCluster(t)
	m := c.move()
	c.startPod()
	m.Prepare = true
	require.NoError(t, m.Run(t.Context()), "pods may use the volume")
	assert.Contains(t, m.Out.(*strings.Builder).String(), "is prepared. Stop the pods, and run `kubectl spdkgate move data --namespace=shop`.")
	other := m
	other.Parameters = map[string]string{"target": "storage-3"}
	require.ErrorIs(t, other.Run(t.Context()), ErrOtherMove)
	m.Prepare, m.Parameters = false, nil
	require.ErrorIs(t, m.Run(t.Context()), ErrInUse)
	c.stopPod()

	// The Job of an earlier command is still running.
	job := c.objects[jobObjects("spdkcsi").path+"/"+m.recordName()]
	ended := job["status"]
	job["status"] = map[string]any{}
	require.ErrorIs(t, m.Run(t.Context()), ErrOtherMove)
	job["status"] = ended
	require.NoError(t, m.Run(t.Context()))
	c.requireMoved(t, 11)
	require.ErrorIs(t, m.KeepOriginal(t.Context()), ErrOtherMove)
	delete(c.objects, claimPath)
	c.put(claimPath, `{"metadata": {"name": "data"}, "spec": {"volumeName": "pv-other"}, "status": {"phase": "Bound"}}`)
	require.ErrorIs(t, m.DeleteOriginal(t.Context()), ErrOtherClaim)
	assert.NotNil(t, c.storage[idA])
}

func TestOriginalOfAnotherClaimIsNotDeleted(t *testing.T) {
	c := newMoveCluster(t)
	m := c.move()
	require.NoError(t, m.Run(t.Context()))
	c.objects[oldPath].set("x", "spec", "claimRef", "uid")
	require.ErrorIs(t, m.DeleteOriginal(t.Context()), ErrOtherClaim)
	assert.NotNil(t, c.storage[idA])
	assert.NotNil(t, c.objects[m.recordPath()])
}

func TestKeysAreMounted(t *testing.T) {
	c := newMoveCluster(t)
	old := c.objects[oldPath]
	old.set(map[string]any{"authentication": "dhchap"}, "spec", "csi", "volumeAttributes")
	old.set(map[string]any{"name": "keys", "namespace": "spdkcsi"}, "spec", "csi", "nodeStageSecretRef")
	m := c.move()
	m.Node = "worker-1"
	require.NoError(t, m.Run(t.Context()))
	path := jobObjects("spdkcsi").path + "/" + m.recordName()
	assert.Contains(t, argsOf(c.objects[path]), "--secret-dir=/keys")
	volumes, _ := c.objects[path].at("spec", "template", "spec", "volumes").([]any)
	assert.Equal(t, map[string]any{"name": "v3", "secret": map[string]any{"secretName": "keys"}}, volumes[3])
	assert.Equal(t, "worker-1", c.objects[path].text("spec", "template", "spec", "nodeName"))
	r, err := m.loadRecord(t.Context())
	require.NoError(t, err)
	args, err := m.endArgs(r)
	require.NoError(t, err)
	assert.Contains(t, args, "--authentication=dhchap")
}

func TestCopyIsFoundInTheLog(t *testing.T) {
	r := &record{claim: object{"metadata": map[string]any{"name": "data", "namespace": "shop"}}, old: object{"metadata": map[string]any{"name": "pv-a"}}}
	const volume = "{\n  \"kind\": \"PersistentVolume\",\nlevel=WARN a late line of standard error\n  \"metadata\": {\"name\": \"pvc-b\"},\n  \"spec\": {\"csi\": {\"volumeHandle\": \"b\"}, \"claimRef\": {\"namespace\": \"shop\", \"name\": \"data\"}}\n}\n"
	found, err := copyIn("copy: 1\n"+volume+"copied\n", r)
	require.NoError(t, err)
	assert.Equal(t, "pvc-b", found.name())
	for _, log := range []string{"", "copy: 1\n", volume[:30], strings.ReplaceAll(volume, "shop", "lab"), strings.ReplaceAll(volume, "pvc-b", "pv-a"), strings.ReplaceAll(volume, "PersistentVolume", "x")} {
		_, err = copyIn(log, r)
		require.Error(t, err, log)
	}
}

func TestProgressShowsEachLineOnce(t *testing.T) {
	var out strings.Builder
	p := progressLines{to: &out}
	p.note("waiting")
	p.note("waiting")
	p.print("a\nb\n")
	p.print("a\nb\nc\n")
	p.print("c\nd\n")
	p.print("d\n{\n  \"kind\": \"x\"\n}\n")
	assert.Equal(t, "waiting\na\nb\nc\nd\n", out.String())
}

// Between the last check and the deletion, a controller changes the claim, or another program
// replaces it.
func TestOnlyTheStoredClaimIsDeleted(t *testing.T) {
	for name, change := range map[string]func(c *moveCluster){
		"changed": func(c *moveCluster) {
			c.objects[claimPath].set(map[string]any{"app": "changed"}, "metadata", "labels")
			c.store(claimPath, c.objects[claimPath])
		},
		"replaced": func(c *moveCluster) {
			delete(c.objects, claimPath)
			c.put(claimPath, `{"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv-other"}, "status": {"phase": "Bound"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMoveCluster(t)
			m := c.move()
			m.direct = func(ctx context.Context, verb, path string, body []byte) ([]byte, error) {
				if verb == "delete" && change != nil {
					change(c)
					change = nil
				}
				return c.request(ctx, verb, path, body)
			}
			err := m.Run(t.Context())
			if name == "replaced" {
				require.ErrorIs(t, err, ErrOtherClaim)
				assert.Equal(t, "pv-other", c.objects[claimPath].text("spec", "volumeName"))
				return
			}
			require.NoError(t, err)
			c.requireMoved(t, 1)
			assert.Equal(t, map[string]string{"app": "changed"}, c.objects[claimPath].texts("metadata", "labels"))
		})
	}
}

// If another command replaces the Job of a move, the end of that Job is not mistaken for the end of
// the first one.
func TestReplacedJobIsRecognized(t *testing.T) {
	c := newMoveCluster(t)
	m := c.move()
	m.Client.direct = func(ctx context.Context, verb, path string, body []byte) ([]byte, error) {
		response, err := c.request(ctx, verb, path, body)
		for at, o := range c.objects {
			if verb == "create" && strings.Contains(at, "/jobs/") {
				o.set("another", "metadata", "uid")
			}
		}
		return response, err
	}
	require.ErrorIs(t, m.Run(t.Context()), ErrOtherMove)
	c.requireNothingLost()
}
