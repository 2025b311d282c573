package kubectl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireMoved checks the state after a complete move. data is the content that the claim's volume
// must have.
func (c *moveCluster) requireMoved(t *testing.T, data int) {
	t.Helper()
	claim := c.objects[claimPath]
	require.NotNil(t, claim, "the claim exists")
	assert.Equal(t, "pvc-"+copyUUID, claim.text("spec", "volumeName"))
	assert.Equal(t, "Bound", claim.text("status", "phase"))
	assert.Equal(t, claim.uid(), c.objects[copyPath].text("spec", "claimRef", "uid"))
	assert.Equal(t, "Delete", c.objects[copyPath].text("spec", "persistentVolumeReclaimPolicy"), "the policy of the original")
	assert.Equal(t, data, c.storage[copyID].data, "the copy has the newest data")
	require.NotNil(t, c.storage[idA], "the original exists")
	assert.Equal(t, retain, c.objects[oldPath].text("spec", "persistentVolumeReclaimPolicy"))
}

func TestMoveRecreatesTheClaim(t *testing.T) {
	c := newMoveCluster(t)
	m := c.move()
	require.NoError(t, m.Run(t.Context()))
	c.requireMoved(t, 1)
	claim := c.objects[claimPath]
	assert.Equal(t, map[string]string{"app": "db"}, claim.texts("metadata", "labels"))
	assert.Equal(t, map[string]string{"note": "x"}, claim.texts("metadata", "annotations"), "without those of binding")
	assert.Equal(t, []any{map[string]any{"kind": "Database", "name": "d", "uid": "u2"}}, claim.at("metadata", "ownerReferences"), "without the pod")
	assert.Equal(t, []string{
		"create /api/v1/namespaces/spdkcsi/configmaps", "create /apis/batch/v1/namespaces/spdkcsi/jobs", "replace " + m.recordPath(),
		"replace " + oldPath, "create " + volumesPath, "replace " + m.recordPath(), "delete " + claimPath, "create " + strings.TrimSuffix(claimPath, "/data"),
	}, c.log)
	text := m.Out.(*strings.Builder).String()
	assert.Contains(t, text, "copy: 1.0 GiB of 1.0 GiB\n")
	assert.Contains(t, text, "Claim shop/data uses the copy "+copyID+". The original "+idA+" is kept.")
	assert.NotContains(t, text, `"kind"`, "the PersistentVolume is not shown")

	job := c.objects[jobObjects("spdkcsi").path+"/"+m.recordName()]
	require.NotNil(t, job)
	assert.Equal(t, []string{"move", "--pv=/move/old.json", "--drivername=csi.spdk.io", "--parameter=target=storage-2", "--node-allow-loop"}, argsOf(job))
	pod, _ := job.at("spec", "template", "spec").(map[string]any)
	assert.Equal(t, "sa", pod["serviceAccountName"])
	assert.Equal(t, true, pod["hostNetwork"])
	container, _ := items(pod["containers"])[0].(map[string]any)
	assert.Equal(t, "driver:v1", container["image"])
	var mounts []string
	for _, one := range items(container["volumeMounts"]) {
		mount, _ := one.(map[string]any)
		mounts = append(mounts, fmt.Sprint(mount["mountPath"]))
	}
	assert.Equal(t, []string{"/move", "/dev", "/etc/spdkcsi-config"}, mounts, "what attaches volumes, and the controller's configuration")

	before := len(c.log)
	require.NoError(t, m.Run(t.Context()), "nothing is left to do")
	assert.Len(t, c.log, before)
	c.startPod() // the pods run again
	require.NoError(t, m.DeleteOriginal(t.Context()))
	assert.Nil(t, c.storage[idA])
	assert.Nil(t, c.objects[oldPath])
	assert.Nil(t, c.objects[m.recordPath()])
	assert.Equal(t, 11, c.volumeInUse().data)
	require.ErrorIs(t, m.DeleteOriginal(t.Context()), ErrNoMove)
}

func (m Move) recordPath() string {
	return configMapObjects(m.Client.Namespace).path + "/" + m.recordName()
}

// changes is the number of changing requests of a move.
const changes = 8

// Each move is interrupted at each request that changes something, before and after the request is
// executed. Then follows what people may do next.
func TestInterruptedMoveLosesNothing(t *testing.T) {
	repeat := func(c *moveCluster, m Move) { require.NoError(c.t, m.Run(c.t.Context())) }
	for name, next := range map[string]func(c *moveCluster, m Move) (data int){
		"repeat": func(c *moveCluster, m Move) int {
			repeat(c, m)
			return 1
		},
		"interrupted again": func(c *moveCluster, m Move) int {
			for at := 1; at <= 3; at++ {
				c.interrupt(at, interruption{executed: !c.executed, kills: c.kills})
				_ = m.Run(c.t.Context())
				c.requireNothingLost()
			}
			c.interrupt(0, interruption{})
			repeat(c, m)
			return 1
		},
		"a pod starts": func(c *moveCluster, m Move) int {
			c.startPod()
			_ = m.Run(c.t.Context())
			c.requireNothingLost()
			c.stopPod()
			written := 1
			if v := c.volumeInUse(); v != nil {
				written = v.data
			}
			repeat(c, m)
			return written
		},
		"the claim changes": func(c *moveCluster, m Move) int {
			if claim := c.objects[claimPath]; claim != nil {
				claim.set(map[string]any{"app": "changed"}, "metadata", "labels")
				c.store(claimPath, claim)
				defer func() {
					assert.Equal(c.t, map[string]string{"app": "changed"}, c.objects[claimPath].texts("metadata", "labels"))
				}()
			}
			repeat(c, m)
			return 1
		},
		"another program creates the claim": func(c *moveCluster, m Move) int {
			if c.objects[claimPath] != nil || c.objects[m.recordPath()] == nil {
				repeat(c, m)
				return 1
			}
			c.put(claimPath, `{"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv-other"}, "status": {"phase": "Bound"}}`)
			stored := c.objects[claimPath].text("metadata", "resourceVersion")
			require.ErrorIs(c.t, m.Run(c.t.Context()), ErrOtherClaim)
			require.ErrorIs(c.t, m.DeleteOriginal(c.t.Context()), ErrOtherClaim)
			require.ErrorIs(c.t, m.KeepOriginal(c.t.Context()), ErrOtherClaim)
			assert.Equal(c.t, stored, c.objects[claimPath].text("metadata", "resourceVersion"), "it is not touched")
			delete(c.objects, claimPath)
			repeat(c, m)
			return 1
		},
		"spdk-csi move --keep-original by hand": func(c *moveCluster, m Move) int {
			if c.objects[claimPath] == nil || c.objects[claimPath].text("spec", "volumeName") != "pv-a" || c.storage[copyID] == nil {
				repeat(c, m)
				return 1
			}
			c.storage[idA].lockedBy = ""
			c.startPod()
			c.stopPod()
			require.Error(c.t, m.Run(c.t.Context()), "the copy lacks data")
			assert.Equal(c.t, 11, c.volumeInUse().data, "the claim still uses the original")
			return -1
		},
		"give up": func(c *moveCluster, m Move) int {
			if err := m.KeepOriginal(c.t.Context()); err != nil {
				c.requireNothingLost()
				if c.objects[claimPath] == nil || c.objects[claimPath].text("spec", "volumeName") != "pv-a" {
					require.ErrorIs(c.t, err, ErrOtherMove, "it is too late")
				} else {
					require.ErrorIs(c.t, err, ErrNoMove, "it has not begun")
				}
				repeat(c, m)
				return 1
			}
			assert.Nil(c.t, c.objects[m.recordPath()])
			assert.Nil(c.t, c.objects[copyPath])
			assert.Equal(c.t, "Delete", c.objects[oldPath].text("spec", "persistentVolumeReclaimPolicy"))
			c.startPod()
			assert.Equal(c.t, 11, c.volumeInUse().data, "nodes can attach the original")
			return -1
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; at <= changes; at++ {
				for _, how := range interruptions {
					c := newMoveCluster(t)
					m := c.move()
					c.interrupt(at, how)
					err := m.Run(t.Context())
					require.GreaterOrEqual(t, len(c.log), at)
					if err != nil {
						require.ErrorIs(t, err, errInterrupted)
					}
					c.requireNothingLost()
					c.interrupt(0, how)
					if data := next(c, m); data >= 0 {
						c.requireMoved(t, data)
					}
					c.requireNothingLost()
					if t.Failed() {
						t.Fatalf("interrupted at %d (%+v):\n%s", at, how, strings.Join(c.log, "\n"))
					}
				}
			}
		})
	}
}

// requireNothingLost checks what is true at any time: the original exists, and the claim can be
// created again if it does not exist.
func (c *moveCluster) requireNothingLost() {
	c.t.Helper()
	require.NotNil(c.t, c.storage[idA], "the original exists")
	require.NotNil(c.t, c.objects[oldPath], "the original's PersistentVolume exists")
	if c.objects[claimPath] == nil {
		m := Move{Client: Client{Namespace: "spdkcsi"}, Namespace: moveNS, Claim: claimName}
		record := c.objects[m.recordPath()]
		require.NotNil(c.t, record)
		for _, key := range []string{keyClaim, keyOld, keyCopy} {
			assert.NotEmpty(c.t, record.text("data", key), key)
		}
		assert.Equal(c.t, moveLabel, record.text("metadata", "labels", "app"))
		assert.Equal(c.t, retain, c.objects[oldPath].text("spec", "persistentVolumeReclaimPolicy"))
	}
}

// The end of a move, and giving it up, are interrupted at each request that changes something.
func TestInterruptedEndOfMoveCanBeRepeated(t *testing.T) {
	for at := 1; at <= 4; at++ {
		for _, how := range interruptions {
			c := newMoveCluster(t)
			m := c.move()
			require.NoError(t, m.Run(t.Context()))
			c.interrupt(at, how)
			if err := m.DeleteOriginal(t.Context()); err != nil {
				c.interrupt(0, how)
				if err := m.DeleteOriginal(t.Context()); err != nil {
					require.ErrorIs(t, err, ErrNoMove, "at %d: %+v", at, how)
				}
			}
			assert.Nil(t, c.storage[idA])
			assert.Nil(t, c.objects[oldPath])
			assert.Nil(t, c.objects[m.recordPath()])
			assert.Equal(t, 1, c.volumeInUse().data)
		}
	}
	for at := 1; at <= 6; at++ {
		for _, how := range interruptions {
			c := newMoveCluster(t)
			m := c.move()
			c.interrupt(changes-1, interruption{kills: true}) // before the claim is deleted
			require.ErrorIs(t, m.Run(t.Context()), errInterrupted)
			c.interrupt(at, how)
			if err := m.KeepOriginal(t.Context()); err != nil {
				c.interrupt(0, how)
				r, err := m.loadRecord(t.Context())
				require.NoError(t, err)
				if r != nil && r.state == stateKeeping {
					require.ErrorIs(t, m.Run(t.Context()), ErrOtherMove, "the copy may lack data soon")
					require.ErrorIs(t, m.DeleteOriginal(t.Context()), ErrOtherClaim)
				}
				if r != nil {
					require.NoError(t, m.KeepOriginal(t.Context()), "at %d: %+v", at, how)
				}
			}
			c.startPod()
			assert.Equal(t, 11, c.volumeInUse().data)
			assert.Nil(t, c.objects[copyPath])
			assert.NotNil(t, c.storage[copyID], "the copy is never deleted")
			assert.Equal(t, "Delete", c.objects[oldPath].text("spec", "persistentVolumeReclaimPolicy"))
		}
	}
}
