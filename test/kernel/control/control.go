// Package control is what the guest of a kernel test and the test on the host tell each other, by
// HTTP and JSON. It knows neither side.
package control

import "time"

// Address is where the guest reaches the host's loopback.
const Address = "10.0.2.2"

// Kernel parameters that tell the guest's init what to do.
const (
	ParamPort     = "spdkgate.port"     // of the host's HTTP server
	ParamScenario = "spdkgate.scenario" // which to run
	ParamTarget   = "spdkgate.target"   // against which target
)

// Scenarios and targets.
const (
	NVMe    = "nvme"
	ISCSI   = "iscsi"
	Writer  = "writer"  // writes volumes until it is told to end
	Deleted = "deleted" // looks for a deleted volume's bytes in a new volume

	Own  = "own"  // the guest kernel's
	SPDK = "spdk" // on the host
)

// Paths of the host's HTTP server.
const (
	PathStep     = "/step"     // Step
	PathTarget   = "/target"   // TargetCall, answered by TargetReply
	PathProgress = "/progress" // []Progress, answered by ProgressReply
	PathFound    = "/found"    // Found
	PathDone     = "/done"     // all steps are done
)

// Step is one thing that the guest did. It is the last one if it has an error.
type Step struct {
	Name    string
	Seconds float64
	Detail  string `json:",omitzero"`
	Error   string `json:",omitzero"`
}

// What a TargetCall can do.
const (
	Make   = "make"   // a volume, exported to one host
	Resize = "resize" // a volume
	Remove = "remove" // a volume and its export
)

// TargetCall asks the host to do something to a volume of its target.
type TargetCall struct {
	Do      string
	Volume  string
	Bytes   int64  `json:",omitzero"`
	HostNQN string `json:",omitzero"`
	HostIQN string `json:",omitzero"`
}

// TargetReply is the context map of the volume that was made, or what went wrong.
type TargetReply struct {
	Context map[string]string `json:",omitzero"`
	Error   string            `json:",omitzero"`
}

// The writer's node and volumes. The seed of a volume's stream of writes is its place here, from 1.
const WriterNode = "kernel-writer"

// WriterVolumes are made, written and left by the writer.
var WriterVolumes = []string{"thin", "thick", "clone"}

// Progress tells how far the writes to a volume are.
type Progress struct {
	Volume  string
	Begun   uint64        // the last write that was begun
	Acked   uint64        // the last that was acknowledged
	Longest time.Duration // that a write took since the last report
}

// ProgressReply says whether to end.
type ProgressReply struct{ End bool }

// What the deleted scenario does: it fills a volume of DeletedBytes, and then writes the first OwnBytes of each of the
// first OwnClusters clusters of the volume that takes its place.
const (
	DeletedBytes = 64 << 20
	ClusterBytes = 1 << 20
	OwnClusters  = 8
	OwnBytes     = 4096
)

// Found counts the bytes of a new volume by where they come from.
type Found struct {
	Zero    int64 // zeroes
	Own     int64 // written to this volume
	Foreign int64 // written to the deleted volume
}
