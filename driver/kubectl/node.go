package kubectl

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

// A Node is a node that runs the driver or is fenced. Unreadable values are nil.
type Node struct {
	Name string `json:"name"`
	// InCluster reports whether the node's Node object exists.
	InCluster *bool `json:"inCluster"`
	// Ready is the condition of the node itself, and PluginReady is the condition of the node
	// plugin's pod. Registered reports whether kubelet has registered the driver.
	Ready       *bool `json:"ready"`
	PluginReady *bool `json:"pluginReady"`
	Registered  *bool `json:"registered"`
	// OutOfService reports whether the node has the taint node.kubernetes.io/out-of-service.
	OutOfService bool   `json:"outOfService"`
	Pod          string `json:"pod,omitempty"`
	Image        string `json:"image,omitempty"`
	Limit        *int64 `json:"limit,omitempty"` // maximum number of volumes on the node; nil for no limit
	// Attached, Attaching and Detaching count the VolumeAttachments of the driver.
	Attached  *int `json:"attached"`
	Attaching *int `json:"attaching"`
	Detaching *int `json:"detaching"`
	// Fenced lists the targets on which the node is fenced, and Unread lists the targets that could
	// not be read. If no target was queried, both lists are nil.
	Fenced []FencedOn `json:"fenced"`
	Unread []string   `json:"unread"`
	// Status is the node plugin's report; nil if it did not respond.
	Status *inventory.NodeStatus `json:"status"`
	// Unknown lists the values that could not be read for this node, with the reasons.
	Unknown []string `json:"unknown,omitempty"`

	id          string // the CSI node id, from which the node's host names on targets are derived
	targets     int    // number of targets that were queried
	attachments []string
}

// FencedOn is a target on which a node is fenced. Since is nil if the fence mark does not record
// the time.
type FencedOn struct {
	Target string     `json:"target"`
	Since  *time.Time `json:"since,omitempty"`
}

// setPlugin records the state of the node plugin's pod. While the pod is being replaced, two pods
// exist, and setPlugin records the state of the new pod.
func (n *Node) setPlugin(p pod, container string) {
	if n.Pod != "" && p.Metadata.DeletionTimestamp != "" {
		return
	}
	n.Pod, n.PluginReady, n.Image = p.Metadata.Name, new(isReady(p.Status.Conditions)), ""
	for _, c := range p.Spec.Containers {
		if c.Name == container {
			n.Image = c.Image
		}
	}
}

// setObject records the contents of the Node object. there is false if the node has been deleted.
func (n *Node) setObject(o node, there bool) {
	n.InCluster = &there
	if !there {
		return
	}
	n.Ready = new(isReady(o.Status.Conditions))
	n.OutOfService = slices.ContainsFunc(o.Spec.Taints, func(t taint) bool { return t.Key == outOfService })
}

func (n *Node) countAttachments() {
	count := func(state string) *int {
		total := 0
		for _, s := range n.attachments {
			if s == state {
				total++
			}
		}
		return &total
	}
	n.Attached, n.Attaching, n.Detaching = count("attached"), count("attaching"), count("detaching")
}

const outOfService = "node.kubernetes.io/out-of-service"

func isReady(conditions []condition) bool {
	return slices.ContainsFunc(conditions, func(c condition) bool { return c.Type == "Ready" && c.Status == "True" })
}

// conditions summarizes the node's state in Kubernetes, using one word for each condition, such as
// Ready.
func (n Node) conditions() string {
	var words []string
	if n.InCluster != nil && !*n.InCluster {
		return "NotInCluster"
	}
	if n.Ready != nil && !*n.Ready {
		words = append(words, "NodeNotReady")
	}
	if n.OutOfService {
		words = append(words, "OutOfService")
	}
	switch {
	case n.PluginReady == nil:
	case n.Pod == "":
		words = append(words, "NoPlugin")
	case !*n.PluginReady:
		words = append(words, "PluginNotReady")
	}
	if n.Registered != nil && !*n.Registered {
		words = append(words, "NotRegistered")
	}
	if n.Ready == nil || n.PluginReady == nil || n.Registered == nil {
		words = append(words, "?")
	}
	return cmp.Or(strings.Join(words, ","), "Ready")
}

func (n Node) version() string {
	if n.Status == nil {
		return "?"
	}
	return n.Status.Version
}

// fenced returns the storage servers on which the node is fenced, and for how long.
func (n Node) fenced(now time.Time) string {
	if n.targets == 0 {
		return "?"
	}
	var names []string
	var since *time.Time
	for _, f := range n.Fenced {
		names = append(names, f.Target)
		if f.Since != nil && (since == nil || f.Since.Before(*since)) {
			since = f.Since
		}
	}
	text := strings.Join(names, ",")
	if len(names) == n.targets {
		text = "all"
	}
	if since != nil {
		text += " (" + age(now, since) + ")"
	}
	if len(n.Unread) > 0 {
		text = strings.TrimPrefix(text+",?", ",")
	}
	return cmp.Or(text, "no")
}

func (n Node) transports() string {
	if n.Status == nil {
		return "?"
	}
	return strings.Join(n.Status.Transports, ",")
}

// lost returns the number of paths that staged volumes have lost, and the storage servers that
// these paths led to.
func (n Node) lost() string {
	if n.Status == nil || n.Status.Staged == nil {
		return "?"
	}
	lost, expected, unknown := 0, 0, false
	var targets []string
	for _, v := range n.Status.Staged.Volumes {
		if v.ExpectedPaths == 0 {
			unknown = true
			continue
		}
		expected += v.ExpectedPaths
		if missing := v.ExpectedPaths - v.LivePaths; missing > 0 {
			lost += missing
			targets = append(targets, v.Target)
		}
	}
	text := strconv.Itoa(lost)
	if lost > 0 {
		slices.Sort(targets)
		text += " of " + strconv.Itoa(expected) + " (" + strings.Join(slices.Compact(targets), ",") + ")"
	}
	if unknown {
		text += ",?"
	}
	return text
}

// published returns the numbers of volumes that are attached, being attached and being detached.
func (n Node) published() string {
	if n.Attached == nil {
		return "?"
	}
	text := strconv.Itoa(*n.Attached)
	if *n.Attaching > 0 {
		text += "+" + strconv.Itoa(*n.Attaching) + " attaching"
	}
	if *n.Detaching > 0 {
		text += "+" + strconv.Itoa(*n.Detaching) + " detaching"
	}
	return text
}

func (n Node) staged() string {
	if n.Status == nil || n.Status.Staged == nil {
		return "?"
	}
	return strconv.Itoa(len(n.Status.Staged.Volumes))
}

// problems counts the unhealthy staged volumes by state.
func (n Node) problems() string {
	if n.Status == nil || n.Status.Staged == nil {
		return "?"
	}
	var states []string
	for _, v := range n.Status.Staged.Volumes {
		if v.State != "ok" {
			states = append(states, v.State)
		}
	}
	slices.Sort(states)
	return counted(states)
}

func (n Node) checked(now time.Time) string {
	if n.Status == nil || n.Status.Staged == nil {
		return "?"
	}
	return age(now, &n.Status.Staged.Checked)
}

// limit returns the maximum number of volumes on the node.
func (n Node) limit() string {
	if n.Limit == nil {
		return ""
	}
	return strconv.FormatInt(*n.Limit, 10)
}
