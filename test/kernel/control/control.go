// Package control defines the messages between the guest of a kernel test and the test on the host,
// which use HTTP and JSON. It may not know either side.
package control

import "time"

// Address is the address at which the guest reaches the host's loopback.
const Address = "10.0.2.2"

// Kernel parameters that tell the guest's init what to do.
const (
	ParamPort     = "spdkgate.port"     // port of the host's HTTP server
	ParamScenario = "spdkgate.scenario" // scenario to run
	ParamTarget   = "spdkgate.target"   // target to use
)

// Scenarios and targets.
const (
	NVMe    = "nvme"
	ISCSI   = "iscsi"
	Writer  = "writer"  // writes to volumes until the host tells it to end
	Deleted = "deleted" // searches a new volume for bytes of a deleted one

	Own  = "own"  // the target of the guest's kernel
	SPDK = "spdk" // an SPDK target on the host
)

// Paths of the host's HTTP server.
const (
	PathStep     = "/step"     // Step
	PathTarget   = "/target"   // TargetCall, answered by TargetReply
	PathProgress = "/progress" // []Progress, answered by ProgressReply
	PathFound    = "/found"    // Found
	PathDone     = "/done"     // all steps are done
)

// Step reports one step of the guest's scenario. A step with an error is the last one.
type Step struct {
	Name    string
	Seconds float64
	Detail  string `json:",omitzero"`
	Error   string `json:",omitzero"`
}

// Values of TargetCall.Do.
const (
	Make   = "make"   // create a volume and export it to one host
	Resize = "resize" // resize a volume
	Remove = "remove" // delete a volume and its export
)

// TargetCall asks the host to change a volume of its target.
type TargetCall struct {
	Do      string
	Volume  string
	Bytes   int64  `json:",omitzero"`
	HostNQN string `json:",omitzero"`
	HostIQN string `json:",omitzero"`
}

// TargetReply has the context map of a new volume, or an error.
type TargetReply struct {
	Context map[string]string `json:",omitzero"`
	Error   string            `json:",omitzero"`
}

// WriterNode is the id of the writer's node.
const WriterNode = "kernel-writer"

// WriterVolumes are the volumes that the writer creates, writes to and leaves. The seed of a volume's
// stream of writes is its position here, counted from 1.
var WriterVolumes = []string{"thin", "thick", "clone"}

// Progress reports the writes to a volume.
type Progress struct {
	Volume  string
	Begun   uint64        // number of the last write that began
	Acked   uint64        // number of the last write that was acknowledged
	Longest time.Duration // of the writes since the last report
}

// ProgressReply tells whether the guest should end.
type ProgressReply struct{ End bool }

// Sizes of the deleted scenario. It fills a volume of DeletedBytes and deletes it. Then it writes the first OwnBytes of each
// of the first OwnClusters clusters of a new volume.
const (
	DeletedBytes = 64 << 20
	ClusterBytes = 1 << 20
	OwnClusters  = 8
	OwnBytes     = 4096
)

// Found counts the bytes of a new volume by their origin.
type Found struct {
	Zero    int64 // zeroes
	Own     int64 // written to this volume
	Foreign int64 // written to the deleted volume
}
