package inventory

import "time"

// An Inventory contains all targets in config.json, in the same order.
type Inventory struct {
	Targets []Target `json:"targets"`
}

// A Target is one storage server. If Error is not empty, the target could not be read completely,
// and the lists are empty.
type Target struct {
	Name      string            `json:"name"`
	Transport string            `json:"transport"`
	Topology  map[string]string `json:"topology,omitempty"`
	Error     string            `json:"error,omitempty"`
	Stores    []Store           `json:"stores,omitempty"`
	Volumes   []Volume          `json:"volumes,omitempty"`
	// Snapshots contains only the requested snapshots.
	Snapshots []Snapshot `json:"snapshots,omitempty"`
	// Fenced contains the fenced nodes, if they were requested.
	Fenced []Fenced `json:"fenced,omitempty"`
}

// Fenced is a node that a target has marked as fenced.
type Fenced struct {
	// Host is the UUID at the end of the host NQN and initiator name of the node.
	Host string `json:"host"`
	// Label is the node's id, limited to 40 printable characters; empty over iSCSI.
	Label string `json:"label,omitempty"`
	// Since is the time when the node was fenced; nil if the fence mark does not record the time.
	Since *time.Time `json:"since,omitempty"`
}

// A Snapshot is a snapshot in an lvstore that the driver may use.
type Snapshot struct {
	ID string `json:"id"` // in the form of Kubernetes, TARGET:UUID
	// Undeletable is the error that the driver would return for a deletion of the snapshot. It is
	// empty if the driver would delete the snapshot.
	Undeletable string `json:"undeletable,omitempty"`
}

// A Store is an lvstore. Sizes are in bytes.
type Store struct {
	Name       string `json:"name"`
	TotalBytes int64  `json:"totalBytes"`
	FreeBytes  int64  `json:"freeBytes"`
	// PromisedBytes is the sum of the sizes of all volumes, plus the space that only snapshots
	// occupy.
	PromisedBytes int64 `json:"promisedBytes"`
	// LargestBytes is the size of the largest thin volume that could be created now.
	LargestBytes int64 `json:"largestBytes"`
	// LongestChain is the maximum number of snapshots below any volume.
	LongestChain int `json:"longestChain"`
}

// A Volume is a volume (not a snapshot) in an lvstore that the driver may use.
type Volume struct {
	ID        string `json:"id"` // in the form of Kubernetes, TARGET:UUID
	Name      string `json:"name"`
	Store     string `json:"store"`
	SizeBytes int64  `json:"sizeBytes"`
	Thin      bool   `json:"thin"`
	// AllocatedBytes is the space that the volume itself occupies, without the snapshots below it.
	// It is nil if the SPDK release does not report this space.
	AllocatedBytes *int64 `json:"allocatedBytes,omitempty"`
	// Conditions lists the volume's adverse conditions.
	Conditions []string `json:"conditions,omitempty"`
	Export     *Export  `json:"export,omitempty"` // nil if it is not exported
}

// An Export makes a volume reachable for hosts.
type Export struct {
	Name string `json:"name"` // NQN or IQN
	// Hosts contains the names of the admitted hosts: NVMe host NQNs or iSCSI initiator names.
	Hosts []string `json:"hosts,omitempty"`
	// Open means that the export admits every host.
	Open bool `json:"open,omitempty"`
	// Connected contains the NQN of the NVMe host, or the address of the iSCSI initiator, of each
	// connection.
	Connected []string `json:"connected,omitempty"`
	Paths     []Path   `json:"paths"`
}

// A Path is an address in config.json that hosts use to reach an export.
type Path struct {
	Address   string `json:"address"` // ADDRESS:PORT
	Listening bool   `json:"listening"`
}

// Inspected describes a volume that is about to be moved.
type Inspected struct {
	SizeBytes int64
	// CopyUUID is the UUID of the copy that spdk-csi move is making, if it has published the volume
	// to the node of the move.
	CopyUUID string
	// Published reports whether the volume is published to the node in question; Others reports
	// whether it is published to any other node except the node of a move.
	Published, Others bool
}

// Allocation describes which clusters of a volume are allocated. All other clusters read as zeros.
type Allocation struct {
	SizeBytes, ClusterSize int64  // sizes of the volume and its clusters, in bytes
	Bitmap                 []byte // cluster i is bit i%8 of byte i/8
	// Counted reports whether SPDK's count of allocated clusters matches Bitmap.
	Counted bool
}

// Has reports whether any of the clusters that contain these bytes is allocated.
func (a Allocation) Has(offset, length int64) bool {
	for i := offset / a.ClusterSize; i*a.ClusterSize < min(offset+length, a.SizeBytes); i++ {
		if a.Bitmap[i/8]>>(i%8)&1 == 1 {
			return true
		}
	}
	return false
}
