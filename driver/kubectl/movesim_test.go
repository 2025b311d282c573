package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostname"
)

// A moveCluster simulates the Kubernetes API with its controllers, and the storage servers, as far
// as a move depends on them. It handles each request completely before the next.
type moveCluster struct {
	t       *testing.T
	objects map[string]object // by path
	next    int
	storage map[string]*simVolume // by id
	log     []string              // the requests that changed something

	// interruptAt is the number of the changing request that fails, counted from 1.
	interruptAt int
	interruption
	killed bool

	// down means that the storage server does not respond. others contains its other volumes.
	down   bool
	others []any
}

// An interruption describes how a request fails. If executed is set, the request is executed, but
// its response is lost. If kills is set, the plugin is killed, so that all later requests fail.
type interruption struct{ executed, kills bool }

var interruptions = []interruption{{}, {executed: true}, {kills: true}, {executed: true, kills: true}}

// interrupt makes the next changing request but n-1 fail. 0 means that no request fails.
func (c *moveCluster) interrupt(n int, how interruption) {
	c.killed, c.interruptAt, c.interruption = false, 0, how
	if n > 0 {
		c.interruptAt = len(c.log) + n
	}
}

// A simVolume is a volume on a storage server.
type simVolume struct {
	data     int    // changes with each write
	lockedBy string // UUID of the copy
	copyOf   string
}

const (
	moveNS, claimName = "shop", "data"
	copyUUID          = "22222222-2222-4222-8222-222222222222"
	copyID            = "storage-2:" + copyUUID
	claimPath         = "/api/v1/namespaces/shop/persistentvolumeclaims/data"
	oldPath           = volumesPath + "/pv-a"
	copyPath          = volumesPath + "/pvc-" + copyUUID
)

var errInterrupted = errors.New("signal: killed")

// newMoveCluster returns a cluster with a claim whose volume no pod uses.
func newMoveCluster(t *testing.T) *moveCluster {
	c := &moveCluster{t: t, objects: map[string]object{}, storage: map[string]*simVolume{idA: {data: 1}}}
	c.put(oldPath, pv("pv-a", moveNS, claimName, idA, ""))
	old := c.objects[oldPath]
	old.set("Delete", "spec", "persistentVolumeReclaimPolicy")
	c.put(claimPath, `{"metadata": {"name": "data", "namespace": "shop", "labels": {"app": "db"}, "annotations": {"note": "x", "pv.kubernetes.io/bind-completed": "yes"},
		"finalizers": ["kubernetes.io/pvc-protection"], "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u1"}, {"kind": "Database", "name": "d", "uid": "u2", "blockOwnerDeletion": true}]},
		"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv-a"}, "status": {"phase": "Bound"}}`)
	old.set(map[string]any{"namespace": moveNS, "name": claimName, "uid": c.objects[claimPath].uid()}, "spec", "claimRef")
	c.put(deploymentPath("spdkcsi", "spdkcsi-controller"), `{"metadata": {"name": "spdkcsi-controller"}, "spec": {"template": {"spec": {"serviceAccountName": "sa", "containers": [{"name": "sidecar"}, {"name": "spdkcsi-controller", "image": "driver:v1",
		"volumeMounts": [{"name": "socket-dir", "mountPath": "/csi"}, {"name": "config", "mountPath": "/etc/spdkcsi-config", "readOnly": true}]}], "volumes": [{"name": "socket-dir", "emptyDir": {}}, {"name": "config", "configMap": {"name": "spdkcsi-cm"}}]}}}}`)
	c.put(daemonSetObjects("spdkcsi").path+"/spdkcsi-node", `{"metadata": {"name": "spdkcsi-node"}, "spec": {"template": {"spec": {"hostNetwork": true, "containers": [{"name": "spdkcsi-node", "args": ["--node", "--node-allow-loop"],
		"securityContext": {"privileged": true}, "volumeMounts": [{"name": "pods", "mountPath": "/pods", "mountPropagation": "Bidirectional"}, {"name": "dev", "mountPath": "/dev"}]}], "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}, {"name": "pods", "hostPath": {"path": "/pods"}}]}}}}`)
	return c
}

func (c *moveCluster) put(path, text string) {
	o, err := parseObject([]byte(text))
	require.NoError(c.t, err, text)
	c.store(path, o)
}

// store gives a new object a UID, and each version of an object a resourceVersion.
func (c *moveCluster) store(path string, o object) {
	c.next++
	if o.uid() == "" {
		o.set(fmt.Sprint("uid-", c.next), "metadata", "uid")
	}
	o.set(fmt.Sprint(c.next), "metadata", "resourceVersion")
	c.objects[path] = o
}

// request is the API server.
func (c *moveCluster) request(_ context.Context, verb, path string, body []byte) ([]byte, error) {
	if c.killed {
		return nil, errInterrupted
	}
	switch verb {
	case "get":
		return c.read(path)
	case "exec":
		return c.inventory()
	}
	c.log = append(c.log, verb+" "+path)
	interrupted := len(c.log) == c.interruptAt
	c.killed = interrupted && c.kills
	if interrupted && !c.executed {
		return nil, errInterrupted
	}
	stored, err := c.change(verb, path, body)
	c.controllers()
	if interrupted {
		return nil, errInterrupted
	}
	if err != nil {
		return nil, fmt.Errorf("Error from server: %s %s: %w", verb, path, err)
	}
	return json.Marshal(stored)
}

func (c *moveCluster) read(path string) ([]byte, error) {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	require.NoError(c.t, err)
	if pod, isLog := strings.CutSuffix(path, "/log"); isLog {
		return []byte(c.objects[pod].text("log")), nil
	}
	if one := c.objects[path]; one != nil {
		return json.Marshal(one)
	}
	name, _ := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	label, value, _ := strings.Cut(query.Get("labelSelector"), "=")
	all := []object{}
	for _, p := range slices.Sorted(maps.Keys(c.objects)) {
		o := c.objects[p]
		in := p[:strings.LastIndex(p, "/")] == path || path == allPodsPath && strings.Contains(p, "/pods/")
		if in && (name == "" || o.name() == name) && (label == "" || o.text("metadata", "labels", label) == value) {
			all = append(all, o)
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{}, "items": all})
}

func (c *moveCluster) change(verb, path string, body []byte) (object, error) {
	o, err := parseObject(body)
	require.NoError(c.t, err)
	switch verb {
	case "create":
		path += "/" + o.name()
		if c.objects[path] != nil {
			return nil, errors.New("AlreadyExists")
		}
		if o.uid() != "" || o.text("metadata", "resourceVersion") != "" {
			return nil, errors.New("resourceVersion should not be set on objects to be created")
		}
	case "replace":
		if c.objects[path] == nil || c.objects[path].text("metadata", "resourceVersion") != o.text("metadata", "resourceVersion") || c.objects[path].uid() != o.uid() {
			return nil, errors.New("Conflict")
		}
	case "delete":
		now := c.objects[path]
		if version := o.text("preconditions", "resourceVersion"); now == nil || o.text("preconditions", "uid") != now.uid() || version != "" && version != now.text("metadata", "resourceVersion") {
			return nil, errors.New("Conflict")
		}
		now.set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
		c.store(path, now)
		return now, nil
	}
	c.store(path, o)
	return o.copied()
}

// controllers runs Kubernetes' controllers until nothing changes.
func (c *moveCluster) controllers() {
	for _, path := range slices.Sorted(maps.Keys(c.objects)) {
		o := c.objects[path]
		switch {
		case o == nil:
		case strings.Contains(path, "/persistentvolumeclaims/"):
			c.reconcileClaim(path, o)
		case o.terminated():
			delete(c.objects, path)
			if strings.Contains(path, "/configmaps/") || strings.Contains(path, "/jobs/") { // garbage collection
				for other, dependent := range c.objects {
					if slices.Contains([]string{o.uid()}, ownerOf(dependent)) {
						dependent.set("now", "metadata", "deletionTimestamp")
						delete(c.objects, other)
					}
				}
			}
		case strings.Contains(path, "/jobs/") && o["status"] == nil:
			c.runJob(path, o)
		}
	}
}

func ownerOf(o object) string {
	owners, _ := o.at("metadata", "ownerReferences").([]any)
	if len(owners) == 0 {
		return ""
	}
	owner, _ := owners[0].(map[string]any)
	uid, _ := owner["uid"].(string)
	return uid
}

func (c *moveCluster) reconcileClaim(path string, claim object) {
	volume := c.objects[volumesPath+"/"+claim.text("spec", "volumeName")]
	switch {
	case claim.terminated():
		if len(c.podNames()) > 0 {
			return // kubernetes.io/pvc-protection
		}
		delete(c.objects, path)
		if volume == nil || volume.text("spec", "claimRef", "uid") != claim.uid() {
			return
		}
		volume.set("Released", "status", "phase")
		if volume.text("spec", "persistentVolumeReclaimPolicy") == "Delete" {
			delete(c.objects, volumesPath+"/"+volume.name())
			delete(c.storage, volume.text("spec", "csi", "volumeHandle"))
		}
	case claim["status"] == nil && volume != nil && volume.text("spec", "claimRef", "name") == claim.name() && volume.text("spec", "claimRef", "uid") == "":
		volume.set(claim.uid(), "spec", "claimRef", "uid")
		volume["status"] = map[string]any{"phase": "Bound"}
		claim["status"] = map[string]any{"phase": "Bound"}
		c.store(path, claim)
	}
}

func (c *moveCluster) podNames() (names []string) {
	for path, o := range c.objects {
		if strings.HasPrefix(path, podsPath(moveNS)+"/") {
			names = append(names, o.name())
		}
	}
	return names
}

// startPod starts a pod that uses the claim and writes to its volume, if a node can attach it.
func (c *moveCluster) startPod() {
	c.put(podsPath(moveNS)+"/user", `{"metadata": {"name": "user"}, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}}`)
	if volume := c.volumeInUse(); volume != nil && volume.lockedBy == "" {
		volume.data += 10
	}
}

func (c *moveCluster) stopPod() {
	delete(c.objects, podsPath(moveNS)+"/user")
	c.controllers()
}

// volumeInUse returns the volume of the claim.
func (c *moveCluster) volumeInUse() *simVolume {
	claim := c.objects[claimPath]
	if claim == nil || claim.text("status", "phase") != "Bound" {
		return nil
	}
	return c.storage[c.objects[volumesPath+"/"+claim.text("spec", "volumeName")].text("spec", "csi", "volumeHandle")]
}

// runJob runs spdk-csi move.
func (c *moveCluster) runJob(path string, job object) {
	old, err := parseObject([]byte(c.objects[strings.Replace(strings.Replace(path, "/apis/batch/v1", "/api/v1", 1), "/jobs/", "/configmaps/", 1)].text("data", keyOld)))
	require.NoError(c.t, err)
	out, code := c.spdkCSI(old, argsOf(job))
	condition := "Complete"
	if code != nil {
		condition, out = "Failed", "spdk-csi: "+code.Error()+"\n"
	}
	job["status"] = map[string]any{"conditions": []any{map[string]any{"type": condition, "status": "True"}}}
	c.store(path, job)
	pod := object{"metadata": map[string]any{"name": job.name() + "-x", "labels": map[string]any{"job-name": job.name()}, "ownerReferences": []any{map[string]any{"uid": job.uid()}}}, "log": out,
		"status": map[string]any{"containerStatuses": []any{map[string]any{"state": map[string]any{"terminated": map[string]any{}}}}}}
	c.store(podsPath("spdkcsi")+"/"+pod.name(), pod)
}

func (c *moveCluster) spdkCSI(old object, args []string) (string, error) {
	id := old.text("spec", "csi", "volumeHandle")
	original := c.storage[id]
	copied := c.storage[copyID]
	switch {
	case original == nil:
		return "", errors.New("the original was not found")
	case slices.Contains(args, "--keep-original"):
		original.lockedBy = ""
		return "nodes can attach it again\n", nil
	case slices.Contains(args, "--delete-original"):
		if original.lockedBy != copyUUID || !slices.Contains(args, "--copy="+copyID) {
			return "", errors.New("nodes could have attached the original since it was copied")
		}
		delete(c.storage, id)
		return "deleted\n", nil
	case slices.Contains(args, "--prepare"):
		return "prepared\n", nil
	case copied != nil && original.lockedBy == "":
		return "", errors.New("already copied")
	case len(c.podNames()) > 0:
		return "", errors.New("it is published to a node")
	}
	c.storage[copyID] = &simVolume{data: original.data, copyOf: id}
	original.lockedBy = copyUUID
	volume, err := old.copied()
	require.NoError(c.t, err)
	volume["metadata"] = map[string]any{"name": "pvc-" + copyUUID}
	volume.set(copyID, "spec", "csi", "volumeHandle")
	volume.set(map[string]any{"namespace": old.text("spec", "claimRef", "namespace"), "name": old.text("spec", "claimRef", "name")}, "spec", "claimRef")
	delete(volume, "status")
	volume["apiVersion"], volume["kind"] = "v1", "PersistentVolume"
	text, err := json.MarshalIndent(volume, "", "  ")
	require.NoError(c.t, err)
	return "copy: 1.0 GiB of 1.0 GiB\n" + string(text[:40]) + string(text[40:]) + "\ncopied and verified in 1s\n", nil
}

// inventory runs spdk-csi inventory in the controller's pod.
func (c *moveCluster) inventory() ([]byte, error) {
	if c.down {
		return []byte(`{"targets": [{"name": "storage-1", "error": "down"}]}`), Status(1)
	}
	volume := map[string]any{"id": idA}
	if v := c.storage[idA]; v != nil && v.lockedBy != "" {
		mover := hostname.Of(hostname.MoveNode(strings.TrimPrefix(idA, "storage-1:"), v.lockedBy))
		volume["export"] = map[string]any{"hosts": []string{mover.NQN, mover.Multipath().NQN}}
	}
	return json.Marshal(map[string]any{"targets": []any{map[string]any{"name": "storage-1", "volumes": append(c.others, volume)}}})
}

// move returns a move of the claim in the cluster.
func (c *moveCluster) move() Move {
	client := Client{Namespace: "spdkcsi", Controller: "deployment/spdkcsi-controller", Container: "spdkcsi-controller", direct: c.request}
	out := &strings.Builder{}
	return Move{
		Client: client, Driver: "csi.spdk.io", Namespace: moveNS, Claim: claimName, Parameters: map[string]string{"target": "storage-2"},
		DaemonSet: "spdkcsi-node", NodeContainer: "spdkcsi-node", Out: out, Notes: out, Poll: time.Microsecond, Patience: 5 * time.Microsecond,
	}
}
