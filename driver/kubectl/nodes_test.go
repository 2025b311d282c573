package kubectl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
)

var nodeOptions = NodeOptions{Live: true, Selector: "app=spdkcsi-node", Container: "spdkcsi-node", Timeout: 10 * time.Second}

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func nodeObject(name, ready, rest string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {%s}, "status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": %q}]}}`, name, rest, ready)
}

func pluginPod(name, node, ready, meta string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q%s}, "spec": {"nodeName": %q, "containers": [{"name": "other", "image": "x"}, {"name": "spdkcsi-node", "image": "spdk-csi:v1"}]}, "status": {"conditions": [{"type": "Ready", "status": %q}]}}`, name, meta, node, ready)
}

// withNodes adds a cluster of five nodes. worker-1 is healthy, worker-2 has lost paths, worker-3 is
// down and fenced, worker-4 was removed while fenced, and worker-5 has no node plugin.
func (a *api) withNodes(t *testing.T) {
	registered := func(name string) string {
		return `{"metadata": {"name": "` + name + `"}, "spec": {"drivers": [{"name": "other", "nodeID": "x"}, {"name": "csi.spdk.io", "nodeID": "` + name + `", "allocatable": {"count": 16}}]}}`
	}
	since := now.Add(-3 * time.Hour)
	worker3, worker4, other := hostname.Of("worker-3").UUID, hostname.Of("worker-4").UUID, hostname.Of("unnamed").UUID
	marks := inventory.Inventory{Targets: []inventory.Target{
		{Name: "storage-1", Fenced: []inventory.Fenced{{Host: worker3, Label: "worker-3", Since: &since}, {Host: worker4, Label: "worker-4"}}},
		{Name: "storage-2", Fenced: []inventory.Fenced{{Host: worker3}, {Host: other}}},
	}}
	text, err := json.Marshal(marks)
	require.NoError(t, err)
	a.change(func() {
		a.lists[csiNodesPath] = []string{registered("worker-1"), registered("worker-2"), registered("worker-3"), `{"metadata": {"name": "elsewhere"}, "spec": {"drivers": null}}`}
		a.lists[nodesPath] = []string{
			nodeObject("worker-1", "True", ""), nodeObject("worker-2", "True", ""), nodeObject("worker-3", "Unknown", `"taints": [{"key": "node.kubernetes.io/out-of-service"}]`),
			nodeObject("worker-5", "True", ""), nodeObject("elsewhere", "True", ""),
		}
		a.lists[podsPath("spdkcsi")] = []string{
			pluginPod("plugin-1", "worker-1", "True", ""), pluginPod("plugin-1-old", "worker-1", "True", `, "deletionTimestamp": "2026-01-01T00:00:00Z"`),
			pluginPod("plugin-2", "worker-2", "False", ""), pluginPod("plugin-3", "worker-3", "False", ""), pluginPod("pending", "", "False", ""),
		}
		a.lists[attachmentsPath] = []string{
			attachment("1", "pv-a", "worker-1", true), attachment("2", "pv-b", "worker-2", true), attachment("3", "pv-c", "worker-2", false),
			strings.Replace(attachment("4", "pv-d", "worker-5", true), `"name": "4"`, `"name": "4", "deletionTimestamp": "2026-01-01T00:00:00Z"`, 1),
		}
		a.run = func(string) (string, string, int) { return string(text), "", 0 }
		a.runOn = func(args string) (string, string, int) {
			status := inventory.NodeStatus{Version: "v1", Transports: []string{"iscsi", "nvme-tcp"}, Staged: &inventory.Staged{Checked: now.Add(-20 * time.Second), IntervalSeconds: 30}}
			switch {
			case strings.Contains(args, "pod/plugin-1 "):
				status.Staged.Volumes = []inventory.StagedVolume{{ID: idA, Target: "storage-1", State: "ok", LivePaths: 2, ExpectedPaths: 2}}
			case strings.Contains(args, "pod/plugin-2 "):
				status.Staged.Volumes = []inventory.StagedVolume{
					{ID: idA, Target: "storage-2", State: "paths_lost", LivePaths: 1, ExpectedPaths: 2}, {ID: idB, Target: "storage-1", State: "not_connected", LivePaths: 0, ExpectedPaths: 2},
					{ID: idC, State: "unknown"}, {ID: "x", Target: "storage-2", State: "paths_lost", LivePaths: 1, ExpectedPaths: 2},
				}
			}
			text, err := json.Marshal(status)
			assert.NoError(t, err)
			return string(text), "", 0
		}
	})
}

func printedNodes(t *testing.T, format Format, live bool, nodes []Node) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, PrintNodes(&out, format, live, now, nodes))
	return out.String()
}

func TestNodesAreShown(t *testing.T) {
	a := newAPI(t)
	a.withNodes(t)
	nodes, err := a.NodeStates(t.Context(), driver, nodeOptions)
	require.ErrorContains(t, err, "node worker-3: cannot read the paths to its volumes: the node is not ready, so its node plugin was not queried")
	require.ErrorContains(t, err, "node worker-5: cannot read the paths to its volumes: no node plugin pod was found on the node")
	unnamed := "host " + hostname.Of("unnamed").UUID
	want := `NODE                                        STATUS                                    PUBLISHED       FENCED           STAGED   LOST-PATHS                           PROBLEMS                              TRANSPORTS       VERSION
` + unnamed + `   NotInCluster                              0               storage-2        ?        ?                                    ?                                     ?                ?
worker-1                                    Ready                                     1               no               1        0                                    -                                     iscsi,nvme-tcp   v1
worker-2                                    PluginNotReady                            1+1 attaching   no               4        4 of 6 (storage-1,storage-2),?       not_connected,paths_lost(2),unknown   iscsi,nvme-tcp   v1
worker-3                                    NodeNotReady,OutOfService,PluginNotReady   0              all (3h)         ?        ?                                    ?                                     ?                ?
worker-4                                    NotInCluster                              0               storage-1        ?        ?                                    ?                                     ?                ?
worker-5                                    NoPlugin,NotRegistered                    0+1 detaching   no               ?        ?                                    ?                                     ?                ?
`
	assert.Equal(t, fields(want), fields(printedNodes(t, Table, true, nodes)))
	assert.Equal(t, []string{"app=spdkcsi-node"}, a.query(podsPath("spdkcsi"))["labelSelector"])
	var asked []string
	for i := range a.commands {
		asked = append(asked, strings.Join(a.command(i), " "))
	}
	slices.Sort(asked)
	assert.Equal(t, []string{
		"--namespace=spdkcsi --context=test deployment/spdkcsi-controller --container=spdkcsi-controller -- spdk-csi inventory --fenced",
		"--namespace=spdkcsi --context=test pod/plugin-1 --container=spdkcsi-node -- spdk-csi node-status",
		"--namespace=spdkcsi --context=test pod/plugin-2 --container=spdkcsi-node -- spdk-csi node-status",
	}, asked)

	wide := printedNodes(t, Wide, true, nodes)
	assert.Regexp(t, `VERSION +CHECKED +LIMIT +POD +IMAGE +UNKNOWN\n`, wide)
	assert.Regexp(t, `worker-1 .* v1 +20s +16 +plugin-1 +spdk-csi:v1 +-\n`, wide)
	assert.Regexp(t, `worker-3 .* \? +\? +16 +plugin-3 +spdk-csi:v1 +cannot read the paths to its volumes: the node is not ready`, wide)
	items := decoded(t, printedNodes(t, JSON, true, nodes))["items"].([]any)
	lost := items[4-1].(map[string]any)
	assert.Equal(t, []any{"worker-3", false, true, true}, []any{lost["name"], lost["ready"], lost["registered"], lost["outOfService"]})
	assert.Nil(t, lost["status"])
	assert.Equal(t, []any{map[string]any{"target": "storage-1", "since": "2026-01-02T09:00:00Z"}, map[string]any{"target": "storage-2"}}, lost["fenced"])
	lossy := items[2].(map[string]any)["status"].(map[string]any)["staged"].(map[string]any)["volumes"].([]any)
	assert.Len(t, lossy, 4)

	some, err := a.NodeStates(t.Context(), driver, NodeOptions{Names: []string{"worker-1", "worker-9"}, Live: true, Timeout: time.Minute})
	require.EqualError(t, err, "node worker-9 neither runs the driver nor is fenced: check its name")
	require.Len(t, some, 1)

	// Without the option Live, only Kubernetes is queried.
	commands := len(a.commands)
	nodes, err = a.NodeStates(t.Context(), driver, NodeOptions{Selector: "app=spdkcsi-node"})
	require.NoError(t, err)
	assert.Len(t, a.commands, commands)
	assert.Equal(t, fields(`NODE STATUS PUBLISHED
worker-1 Ready 1
worker-2 PluginNotReady 1+1 attaching
worker-3 NodeNotReady,OutOfService,PluginNotReady 0
worker-5 NoPlugin,NotRegistered 0+1 detaching
`), fields(printedNodes(t, Table, false, nodes)))
	assert.Contains(t, printedNodes(t, JSON, false, nodes), `"fenced": null`, "unknown, not empty")
}

// fields splits lines into words, because only the order of cells matters.
func fields(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// Unreadable values are shown as unknown, and all other values are still shown.
func TestUnreadableNodeFactsAreShownAsUnknown(t *testing.T) {
	row := func(t *testing.T, nodes []Node, node string) string {
		t.Helper()
		for _, line := range fields(printedNodes(t, Table, true, nodes)) {
			if line[0] == node {
				return strings.Join(line[1:], " ")
			}
		}
		return ""
	}
	const well, lossy = "Ready 1 no 1 0 - iscsi,nvme-tcp v1", "PluginNotReady 1+1 attaching no 4 4 of 6 (storage-1,storage-2),? not_connected,paths_lost(2),unknown iscsi,nvme-tcp v1"
	for path, want := range map[string]string{
		nodesPath:           "? 1 no 1 0 - iscsi,nvme-tcp v1",
		csiNodesPath:        "? 1 no 1 0 - iscsi,nvme-tcp v1",
		attachmentsPath:     "Ready ? no 1 0 - iscsi,nvme-tcp v1",
		podsPath("spdkcsi"): "? 1 no ? ? ? ? ?",
		"":                  well,
	} {
		t.Run(path, func(t *testing.T) {
			a := newAPI(t)
			a.withNodes(t)
			a.change(func() { a.fails[path] = "Error from server (Forbidden): no" })
			nodes, err := a.NodeStates(t.Context(), driver, nodeOptions)
			if path != "" {
				require.ErrorContains(t, err, "Error from server (Forbidden): no")
			}
			assert.Equal(t, want, row(t, nodes, "worker-1"))
		})
	}

	a := newAPI(t)
	a.withNodes(t)
	a.change(func() { a.fails[csiNodesPath], a.fails[podsPath("spdkcsi")] = "no", "no" })
	nodes, err := a.NodeStates(t.Context(), driver, nodeOptions)
	require.Error(t, err)
	assert.Nil(t, nodes, "which nodes run the driver is unknown")
	a.change(func() { clear(a.fails) })
	a.change(func() {
		a.run = func(string) (string, string, int) {
			return `{"targets": [{"name": "storage-1", "fenced": [{"host": "` + hostname.Of("worker-1").UUID + `"}]}, {"name": "storage-2", "error": "connection refused"}]}`, "", 1
		}
	})
	nodes, err = a.NodeStates(t.Context(), driver, nodeOptions)
	require.ErrorContains(t, err, "storage server storage-2 is not shown: connection refused")
	assert.Equal(t, strings.Replace(well, " no ", " storage-1,? ", 1), row(t, nodes, "worker-1"))
	assert.Equal(t, strings.Replace(lossy, " no ", " ? ", 1), row(t, nodes, "worker-2"), "a storage server that did not respond may have fenced it")
	a.change(func() {
		a.run = func(string) (string, string, int) { return "", "unknown flag: --fenced", 1 }
	})
	nodes, err = a.NodeStates(t.Context(), driver, nodeOptions)
	require.ErrorContains(t, err, "unknown flag: --fenced")
	assert.Equal(t, strings.Replace(well, " no ", " ? ", 1), row(t, nodes, "worker-1"))

	for name, c := range map[string]struct{ out, notes, says, want string }{
		"an earlier release": {"", `unknown command "node-status"`, `unknown command "node-status"`, "? ? ? ? ?"},
		"nothing":            {"", "", "exit status 1", "? ? ? ? ?"},
		"not JSON":           {"x", "", "exit status 1", "? ? ? ? ?"},
		"unknown volumes":    {`{"version": "v2", "transports": ["iscsi"], "problem": "not checked yet"}`, "", "not checked yet", "? ? ? iscsi v2"},
		"too much":           {strings.Repeat(" ", mostStatus+1), "", "printed more than", "? ? ? ? ?"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.withNodes(t)
			a.change(func() { a.runOn = func(string) (string, string, int) { return c.out, c.notes, 1 } })
			nodes, err := a.NodeStates(t.Context(), driver, nodeOptions)
			require.ErrorContains(t, err, c.says)
			assert.Contains(t, strings.Join(nodes[1].Unknown, ""), c.says)
			assert.Equal(t, "Ready 1 no "+c.want, row(t, nodes, "worker-1"))
		})
	}
	a.change(func() {
		a.runOn = func(string) (string, string, int) { time.Sleep(200 * time.Millisecond); return "", "", 0 }
	})
	short := nodeOptions
	short.Timeout = time.Millisecond
	_, err = a.NodeStates(t.Context(), driver, short)
	require.ErrorContains(t, err, "node worker-1: cannot read the paths to its volumes: run spdk-csi node-status in pod plugin-1 of namespace spdkcsi: no response within 1ms")
}
