// Package control defines the messages between a kernel test's guest and the test on the host,
// which communicate with HTTP and JSON. It does not depend on either side.
package control

import "time"

// Address is the guest's address for the host's loopback interface.
const Address = "10.0.2.2"

// These kernel parameters configure the guest's init.
const (
	ParamPort     = "spdkgate.port"     // port of the host's HTTP server
	ParamScenario = "spdkgate.scenario" // scenario to run
	ParamTarget   = "spdkgate.target"   // target to use
	ParamAll      = "spdkgate.all"      // 1: also run the long cases
	ParamNode     = "spdkgate.node"     // id of the node; default FirstNode
	ParamPhase    = "spdkgate.phase"    // phase of a scenario with several boots
	ParamAcked    = "spdkgate.acked"    // with .VOLUME: what was acknowledged before this boot
	ParamSameSize = "spdkgate.samesize" // 1: copies cannot be larger than their source
	ParamCase     = "spdkgate.case"     // regular expression of the cases to run
)

// These are the scenarios and the targets.
const (
	NVMe      = "nvme"
	ISCSI     = "iscsi"
	Writer    = "writer"    // writes to volumes until the host tells it to end
	Ordered   = "ordered"   // writes to volumes in turn until the host tells it to end
	Node      = "node"      // calls to spdk-csi --node over its socket
	Killed    = "killed"    // the same, but the plugin is killed at its steps
	Encrypted = "encrypted" // encrypted volumes, and the plugin is killed while it encrypts one
	Deleted   = "deleted"   // searches a new volume for bytes of a deleted one

	MovedFrom = "movedfrom" // a node that is disconnected and loses its volume
	MovedTo   = "movedto"   // the node that gets the volume
	Copied    = "copied"    // a volume that spdk-csi move copies to another lvstore
	Restarted = "restarted" // writes while the target is killed and started again
	PowerLoss = "powerloss" // writes until the host ends the machine; three phases

	Mirrored      = "mirrored"      // a mirror of two replicas, of which one fails and returns
	Healed        = "healed"        // the same with two storage servers, which fail and return
	Replicated    = "replicated"    // the same with CSI calls, and losses of the node's power; phases as for PowerLoss
	Authenticated = "authenticated" // a volume that requires authentication, by the method named in ParamPhase

	Own      = "own"       // the target of the guest's kernel
	OwnISCSI = "own-iscsi" // the iSCSI target of the guest's kernel
	OwnRDMA  = "own-rdma"  // the target of the guest's kernel, reached by emulated RDMA
	SPDK     = "spdk"      // an SPDK target on the host

	SPDKISCSI = "spdk-iscsi" // an SPDK target on the host, over iSCSI
)

// These are the paths on the host's HTTP server.
const (
	PathStep     = "/step"     // Step
	PathTarget   = "/target"   // TargetCall, answered by TargetReply
	PathProgress = "/progress" // []Progress, answered by ProgressReply
	PathFound    = "/found"    // Found
	PathDone     = "/done"     // all steps are done
)

// Plugin is the path of spdk-csi in the guest.
const Plugin = "/spdk-csi"

// These are the node ids of the machines.
const (
	FirstNode  = "vm-node"
	SecondNode = "vm-node-2"
)

// These are the phases of the scenario PowerLoss.
const (
	PhaseWrite = "write" // volumes are formatted and written until the power is lost
	// volumes are staged again, compared, and written until power is lost again
	PhaseCheck = "check"
	// of Replicated: the node is cut off and loses its volume; another node gets it, while both
	// servers respond, or while only one does
	PhaseAway        = "moved-away"
	PhaseHere        = "moved-here"
	PhaseHereWithOne = "moved-here-with-one-server"

	PhaseDegraded = "degraded" // of Replicated: a storage server returns, and power is lost during the rebuild
	PhaseOne      = "one"      // of Replicated: a storage server is lost, and later the node
	PhaseKept     = "kept"     // of Replicated: an administrator has kept the replica that was lost first
	PhaseUnstage  = "unstage"  // volumes are unstaged without being staged again
)

// PowerLossVolumes lists the file systems on the volumes of the scenario PowerLoss. Each volume is
// named after its file system.
var PowerLossVolumes = []string{"ext4", "xfs"}

// A Step reports one step of the guest's scenario. A step with an error is the last one.
type Step struct {
	Case    string `json:",omitzero"` // the test case to which the step belongs
	Name    string
	Seconds float64
	Detail  string `json:",omitzero"`
	Figures string `json:",omitzero"` // measured, for the table of cases
	Error   string `json:",omitzero"`
}

// These are the values of TargetCall.Do.
const (
	Make   = "make"   // create a volume and export it to one host
	Resize = "resize" // resize a volume
	Remove = "remove" // delete a volume and its export

	Publish        = "publish"         // publish a volume to a node
	Move           = "move"            // unpublish a volume from its node, and wait until another node has written to it
	Restart        = "restart"         // kill the target and start it again
	Kill           = "kill"            // kill the target
	Pause          = "pause"           // stop the target's process, so that it does not respond
	Continue       = "continue"        // let a paused target continue
	Await          = "await"           // wait until the first node's write has failed
	Failed         = "failed"          // the first node's write has failed
	Snapshot       = "snapshot"        // take a snapshot of a volume
	RemoveSnapshot = "remove snapshot" // delete a snapshot
	Withdraw       = "withdraw"        // unpublish a volume from all nodes, and return its id as VolumeID
	Configuration  = "configuration"   // return the driver's configuration: config.json, secret.json, and another lvstore
	PowerOff       = "power off"       // end the machine as a power loss would
	Account        = "account"         // return a node's access to the API server: port, ca.crt and token
	Witness        = "witness"         // return the witness of a replicated volume, in JSON
	Acked          = "acked"           // return the writes that the guest has reported, by volume
	Forget         = "forget"          // the guest has deleted a volume
)

// The scenario Healed uses volumes with these names, each on its own target.
const (
	ReplicaA = "replica-a"
	ReplicaB = "replica-b"
)

// OriginPrefix is the prefix of the names of volumes that are copied.
const OriginPrefix = "origin-"

// Thick is the suffix of the names of thick volumes.
const Thick = "thick"

// VolumeID is the key of a volume's id in a context map.
const VolumeID = "volume-id"

// TargetCall asks the host to change a volume on its target.
type TargetCall struct {
	Do      string
	Volume  string
	Bytes   int64  `json:",omitzero"`
	HostNQN string `json:",omitzero"`
	HostIQN string `json:",omitzero"`

	Node       string            `json:",omitzero"` // id of the node that gets the volume
	From       string            `json:",omitzero"` // volume to copy
	Snapshot   string            `json:",omitzero"` // snapshot to take, to restore or to delete
	Parameters map[string]string `json:",omitzero"` // of the StorageClass
	Secrets    map[string]string `json:",omitzero"` // of the call
	Replicated bool              `json:",omitzero"` // create the volume with two replicas
	Replica    int               `json:",omitzero"` // the number of the replica whose server is killed, paused, continued or restarted

	Acked, Begun uint64 `json:",omitzero"` // the writes of the node that loses the volume
}

// TargetReply contains a new volume's context map, or an error.
type TargetReply struct {
	Context map[string]string `json:",omitzero"`
	Error   string            `json:",omitzero"`
}

// WriterNode is the id of the node that writes.
const WriterNode = "kernel-writer"

// WriterVolumes lists the volumes that the writer creates and writes to, and does not delete. The
// seed for a volume's stream of writes is its position in this list, counted from 1.
var WriterVolumes = []string{"thin", "thick", "clone"}

// OrderedVolumes lists the volumes that the scenario Ordered writes to in turn.
var OrderedVolumes = []string{"ordered-0", "ordered-1", "ordered-2", "ordered-3"}

// A Progress reports the writes to a volume.
type Progress struct {
	Volume  string
	Begun   uint64        // number of the last write that began
	Acked   uint64        // number of the last write that was acknowledged
	Longest time.Duration // duration of the longest write since the last report
}

// ProgressReply states whether the guest should end.
type ProgressReply struct{ End bool }

// Sizes for the scenario Deleted, which fills a volume of DeletedBytes and deletes it. Then it
// writes the first OwnBytes of each of the first OwnClusters clusters of a new volume.
const (
	DeletedBytes = 64 << 20
	ClusterBytes = 1 << 20
	OwnClusters  = 8
	OwnBytes     = 4096
)

// A Found contains the numbers of bytes in a new volume, by their origin.
type Found struct {
	Zero    int64 // zeroes
	Own     int64 // written to this volume
	Foreign int64 // written to the deleted volume
}
