package kubectl

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A Volume is one of the driver's PersistentVolumes.
type Volume struct {
	Namespace string `json:"namespace,omitempty"` // namespace of the PersistentVolumeClaim
	Claim     string `json:"claim,omitempty"`
	Name      string `json:"name"`
	ID        string `json:"id"`
	// Target is the storage server; for a volume with replicas, the names of its servers, separated
	// by commas.
	Target string `json:"target,omitempty"`
	// Store is the volume's lvstore; empty for manually created volumes.
	Store       string       `json:"store,omitempty"`
	Transport   string       `json:"transport,omitempty"`
	Size        string       `json:"size"`
	Class       string       `json:"class,omitempty"`
	Mode        string       `json:"mode,omitempty"`
	AccessModes []string     `json:"accessModes,omitempty"`
	Status      string       `json:"status"`
	Nodes       []Attachment `json:"nodes,omitempty"`
	// Live contains information from the target; nil if the target was not queried, could not be
	// read, or has no such volume.
	Live *Live `json:"live,omitempty"`
}

// An Attachment is a node to which Kubernetes attaches a volume.
type Attachment struct {
	Node  string `json:"node"`
	State string `json:"state"` // attached, attaching or detaching
}

// Live is a target's information about a volume.
type Live struct {
	inventory.Volume
	// ExportedTo lists the admitted hosts, by node name if the node is known.
	ExportedTo []string `json:"exportedTo,omitempty"`
	// Connected lists the host of each connection, by node name if the node is known.
	Connected []string `json:"connected,omitempty"`
}

// targetType is the volume attribute that contains a volume's transport.
const targetType = "targetType"

// A Filter selects volumes. Empty fields select everything.
type Filter struct {
	Namespace, Target, Store, Class, Node string
	// Names selects PersistentVolumeClaims or PersistentVolumes.
	Names []string
}

func (f Filter) selects(v Volume) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Namespace, v.Namespace) && (f.Target == "" || slices.Contains(strings.Split(v.Target, ","), f.Target)) && is(f.Store, v.Store) && is(f.Class, v.Class) &&
		(f.Node == "" || slices.ContainsFunc(v.Nodes, func(a Attachment) bool { return a.Node == f.Node })) &&
		(len(f.Names) == 0 || slices.Contains(f.Names, v.Claim) || slices.Contains(f.Names, v.Name))
}

// Volumes returns a driver's PersistentVolumes, ordered by namespace and claim.
func (c Client) Volumes(ctx context.Context, driver string, f Filter) ([]Volume, error) {
	objects, err := c.persistentVolumes(ctx, driver)
	if err != nil {
		return nil, err
	}
	attachments, err := c.attachments(ctx, driver)
	if err != nil {
		return nil, err
	}
	var volumes []Volume
	for _, o := range objects {
		v := volumeOf(o)
		for _, a := range attachments[v.Name] {
			v.Nodes = append(v.Nodes, attachmentOf(a))
		}
		if f.selects(v) {
			volumes = append(volumes, v)
		}
	}
	slices.SortFunc(volumes, func(a, b Volume) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Name, b.Name))
	})
	return volumes, nil
}

func volumeOf(o persistentVolume) Volume {
	v := Volume{
		Namespace: o.Spec.ClaimRef.Namespace, Claim: o.Spec.ClaimRef.Name, Name: o.Metadata.Name, ID: o.Spec.CSI.VolumeHandle,
		Store: o.Spec.CSI.VolumeAttributes[request.KeyStore], Transport: o.Spec.CSI.VolumeAttributes[targetType],
		Size: o.Spec.Capacity.Storage, Class: o.Spec.StorageClassName, Mode: o.Spec.VolumeMode, AccessModes: o.Spec.AccessModes, Status: o.Status.Phase,
	}
	if id, err := request.ParseVolumeID(v.ID); err == nil {
		v.Target = id.Target
		if id.Replicated() {
			v.Target = serversOf(o.Spec.CSI.VolumeAttributes[request.KeyReplicated])
		}
	}
	if o.Metadata.DeletionTimestamp != "" {
		v.Status = "Terminating"
	}
	return v
}

// serversOf returns the names of the storage servers in a volume's attribute, separated by commas.
func serversOf(attribute string) string {
	r, err := request.ParseReplicated(attribute)
	if err != nil {
		return request.ReplicatedTarget
	}
	var servers []string
	for _, x := range r.Replicas {
		servers = append(servers, x.Server)
	}
	return strings.Join(servers, ",")
}

func attachmentOf(a volumeAttachment) Attachment {
	state := "attaching"
	switch {
	case a.Metadata.DeletionTimestamp != "":
		state = "detaching"
	case a.Status.Attached:
		state = "attached"
	}
	return Attachment{Node: a.Spec.NodeName, State: state}
}

// AddLive adds information from the targets to volumes. nodes contains the names of the cluster's
// nodes, which replace host names.
func AddLive(volumes []Volume, from inventory.Inventory, nodes []string) {
	byID := map[string]inventory.Volume{}
	for _, t := range from.Targets {
		for _, v := range t.Volumes {
			byID[v.ID] = v
			if _, uuid, ok := strings.Cut(v.ID, ":"); ok { // as in the PersistentVolumes of manually created volumes
				byID[uuid] = v
			}
		}
	}
	names := map[string]string{}
	for _, node := range nodes {
		h := hostname.Of(node)
		names[h.NQN], names[h.Multipath().NQN], names[h.IQN] = node, node, node
	}
	for i := range volumes {
		found, ok := byID[volumes[i].ID]
		if !ok {
			continue
		}
		live := &Live{Volume: found}
		if e := found.Export; e != nil {
			live.ExportedTo = slices.Compact(nodesOf(e.Hosts, names)) // a node has two host names
			live.Connected = nodesOf(e.Connected, names)
		}
		volumes[i].Live = live
	}
}

// nodesOf returns the sorted names of the nodes of hosts. It returns hosts of unknown nodes
// unchanged.
func nodesOf(hosts []string, names map[string]string) []string {
	var nodes []string
	for _, h := range hosts {
		nodes = append(nodes, cmp.Or(names[h], h))
	}
	slices.Sort(nodes)
	return nodes
}
