package figures

import "time"

// Figures contains the figures that were read from a target at one time. It is not modified after
// being returned.
type Figures struct {
	Taken    time.Time     // when the read ended
	Took     time.Duration // duration of the read
	Up       bool          // the target responded and is past startup
	Phase    string        // unreachable, startup or runtime
	Release  string        // "" means unknown
	Restarts int           // number of restarts since the caller first reached the target
	Started  time.Time     // when the target started, according to its reactors' clocks; zero if unknown

	// Clock is the target's clock, in seconds, when it counted the I/O. To compute a rate, divide
	// the difference between a counter's values in two Figures by the difference between their
	// clocks.
	Clock float64

	Stores  []Store
	Volumes []Volume // volumes and snapshots of all stores
	Bdevs   []Bdev   // bdevs that are not volumes
	// Histograms contains the requested histograms that have been read so far. Each call of Read
	// reads only one histogram, so with n histograms, the oldest may have been read n calls ago.
	Histograms []Histogram

	NVMf     NVMf
	ISCSI    ISCSI
	Reactors []Reactor
	Buffers  []BufferPool
	Threads  []Thread
	Pollers  []Poller

	// Tenants holds how much of its quota each tenant uses. A Reader does not set it.
	Tenants []TenantAmount

	Calls    int // number of calls to SPDK for these figures
	Failures []Failure
}

// A Failure describes a call to which the target did not respond with a result. The figures that
// the call returns are missing, or come from its last result. If a histogram's bdev does not exist,
// the failure is recorded without a call.
type Failure struct {
	Method string
	Err    error
}

// An Operation contains the counters for one kind of I/O since the bdev was created or its
// statistics were reset.
type Operation struct {
	Bytes   uint64
	Count   uint64
	Latency float64 // total latency of all operations, in seconds
}

// An IO contains the I/O counters of a bdev.
type IO struct {
	Read, Write, Unmap Operation
}

// A TenantAmount describes a tenant's use of one limit in its quota.
type TenantAmount struct {
	Tenant, Object string // Object is bytes, volumes, subsystems, hosts, listeners or keys
	Used           uint64
	Quota          *uint64 // nil means unlimited
}

// A Store describes an lvstore.
type Store struct {
	Name, UUID, BaseBdev string
	ClusterSize          uint64 // in bytes
	Clusters, Free       uint64 // numbers of data clusters
	Volumes, Snapshots   int
	// Committed is the space, in bytes, that would be used if every volume were fully written: the
	// sizes of the volumes plus the space that snapshots have allocated. If it exceeds the store's
	// size, writes to thin volumes can fail.
	Committed uint64
	// Unsized is the number of volumes whose size is not known yet. Committed does not include
	// them.
	Unsized int
}

// Size returns the space for data, in bytes.
func (s Store) Size() uint64 { return s.Clusters * s.ClusterSize }

// FreeBytes returns the unallocated space in bytes.
func (s Store) FreeBytes() uint64 { return s.Free * s.ClusterSize }

// A Volume describes a logical volume or a snapshot.
type Volume struct {
	Store, Name, UUID     string
	Snapshot, Clone, Thin bool
	Degraded              bool
	Size                  uint64 // in bytes; 0 if unknown
	Allocated             uint64 // in bytes, without its parents' clusters
	AllocatedKnown        bool
	IO                    IO
	HasIO                 bool // whether IO is known
}

// A Bdev describes a bdev that is not a logical volume.
type Bdev struct {
	Name string
	IO   IO
}

// NVMf describes the target's NVMe-oF exports, without the discovery subsystem.
type NVMf struct {
	Known                                   bool
	Subsystems, Namespaces, Hosts, AnyHosts int
	Listeners                               map[string]int // number of listeners by transport
	PollGroups                              []PollGroup
}

// Controllers returns the number of connected controllers, each of which has one admin queue pair.
func (n NVMf) Controllers() (sum uint64) {
	for _, g := range n.PollGroups {
		sum += g.AdminQueuePairs
	}
	return sum
}

// QueuePairs returns the number of connected queue pairs.
func (n NVMf) QueuePairs() (sum uint64) {
	for _, g := range n.PollGroups {
		sum += g.AdminQueuePairs + g.IOQueuePairs
	}
	return sum
}

// A PollGroup serves NVMe-oF connections on one thread.
type PollGroup struct {
	Name                                    string
	AdminQueuePairs, IOQueuePairs           uint64 // current numbers
	AdminQueuePairsTotal, IOQueuePairsTotal uint64 // numbers created so far
	Pending                                 uint64 // number of commands waiting for a free bdev I/O
	Completed                               uint64
}

// ISCSI describes the target's iSCSI exports.
type ISCSI struct {
	Known             bool
	TargetNodes, LUNs int
	Connections       int
}

// A Reactor describes a core on which the target runs.
type Reactor struct {
	Core       uint64
	Busy, Idle float64 // in seconds
	Threads    int
}

// A BufferPool describes a module's use of a buffer pool. SPDK has reported buffer pools since
// v24.01.
type BufferPool struct {
	Module, Pool        string // small, large
	FromCache, FromPool uint64
	Retries             uint64 // how often the module had to wait because no buffer was free
}

// A Thread describes an SPDK thread. The figures of threads with the same name are added up.
type Thread struct {
	Name                  string
	Busy, Idle            float64 // in seconds
	Active, Timed, Paused uint64  // numbers of pollers
}

// A Poller describes a thread's poller. The figures of pollers with the same name on the same
// thread are added up.
type Poller struct {
	Thread, Name   string
	Runs, BusyRuns uint64
}
