package inventory

import "time"

// A NodeStatus is the report of a node plugin about itself and its node.
type NodeStatus struct {
	Version string `json:"version"`
	// Transports lists the transports whose modules the node's kernel currently has.
	Transports []string `json:"transports"`
	// Staged is the result of the last check of the staged volumes. If the result is unknown,
	// Staged is nil, and Problem is the reason.
	Staged  *Staged `json:"staged,omitempty"`
	Problem string  `json:"problem,omitempty"`
}

// Staged describes the volumes that were staged on a node at one time.
type Staged struct {
	Checked time.Time `json:"checked"`
	// IntervalSeconds is the time between two checks.
	IntervalSeconds float64        `json:"intervalSeconds"`
	Volumes         []StagedVolume `json:"volumes"`
}

// A StagedVolume is a volume that is staged on a node.
type StagedVolume struct {
	ID     string `json:"id"` // in the form of Kubernetes, TARGET:UUID
	Target string `json:"target,omitempty"`
	// State is the most severe problem of the volume, or ok, as in the metric
	// spdk_csi_node_volume_state.
	State    string   `json:"state"`
	Findings []string `json:"findings,omitempty"`
	// LivePaths and ExpectedPaths count the volume's paths. If the paths are unknown, both counts
	// are 0.
	LivePaths     int `json:"livePaths"`
	ExpectedPaths int `json:"expectedPaths"`
}
