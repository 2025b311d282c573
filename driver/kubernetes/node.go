package kubernetes

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
)

// node contains the parts of a Node object that this package reads.
type node struct {
	Metadata struct {
		Labels map[string]string
		// DeletionTimestamp is set while the object is being deleted.
		DeletionTimestamp string
	}
	Spec struct {
		Unschedulable bool
		// Taints are not decoded, because a patch must match them exactly.
		Taints []json.RawMessage
	}
	Status struct {
		VolumesInUse    []string
		VolumesAttached []struct{ Name string }
	}
}

// taints returns the keys of the node's taints, in their order.
func (n node) taints() []string {
	keys := make([]string, len(n.Spec.Taints))
	for i, raw := range n.Spec.Taints {
		var taint struct{ Key string }
		_ = json.Unmarshal(raw, &taint) // cannot fail: the API server has validated the taint
		keys[i] = taint.Key
	}
	return keys
}

// volumes returns the driver's volumes that kubelet is using, or that are attached to the node.
func (n node) volumes(driver string) []string {
	prefix := "kubernetes.io/csi/" + driver + "^"
	seen := map[string]bool{}
	var found []string
	add := func(name string) {
		if handle, ours := strings.CutPrefix(name, prefix); ours && !seen[handle] {
			seen[handle] = true
			found = append(found, handle)
		}
	}
	for _, name := range n.Status.VolumesInUse {
		add(name)
	}
	for _, v := range n.Status.VolumesAttached {
		add(v.Name)
	}
	return found
}

func nodePath(name string) string { return "/api/v1/nodes/" + url.PathEscape(name) }

func (c *Client) node(ctx context.Context, name string) (n node, err error) {
	return n, c.call(ctx, nodePath(name), nil, nil, &n)
}

// csiNode contains the parts of a CSINode object that this package reads. Kubelet writes the object
// when it registers a driver.
type csiNode struct {
	Spec struct {
		Drivers []csiNodeDriver
	}
}

type csiNodeDriver struct {
	Name, NodeID string
	Allocatable  *struct{ Count *int64 }
}

func (c *Client) csiNode(ctx context.Context, name string) (n csiNode, err error) {
	return n, c.call(ctx, "/apis/storage.k8s.io/v1/csinodes/"+url.PathEscape(name), nil, nil, &n)
}

// attachments returns the names of the PersistentVolumes that a driver has attached to a node. The
// API server cannot select VolumeAttachments by their node, so attachments reads all of them, page
// by page.
func (c *Client) attachments(ctx context.Context, driver, nodeName string) (volumes []string, err error) {
	type attachment struct {
		Spec struct {
			Attacher, NodeName string
			Source             struct{ PersistentVolumeName string }
		}
	}
	err = each(ctx, c, "/apis/storage.k8s.io/v1/volumeattachments", func(a attachment) {
		if a.Spec.Attacher == driver && a.Spec.NodeName == nodeName {
			volumes = append(volumes, a.Spec.Source.PersistentVolumeName)
		}
	})
	return volumes, err
}
