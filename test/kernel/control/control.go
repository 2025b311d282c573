// Package control is what the guest of a kernel test and the test on the host tell each other, by
// HTTP and JSON. It knows neither side.
package control

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
	NVMe  = "nvme"
	ISCSI = "iscsi"

	Own  = "own"  // the guest kernel's
	SPDK = "spdk" // on the host
)

// Paths of the host's HTTP server.
const (
	PathStep   = "/step"   // Step
	PathTarget = "/target" // TargetCall, answered by TargetReply
	PathDone   = "/done"   // all steps are done
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
