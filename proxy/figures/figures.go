package figures

import "time"

// Figures contains the figures that were read from a target at one time. It does not change after
// Read has returned it.
type Figures struct {
	Taken    time.Time     // when the read ended
	Took     time.Duration // duration of the read
	Up       bool          // whether the target responded and is past its startup
	Phase    string        // unreachable, startup or runtime
	Release  string        // "" means unknown
	Restarts int           // restarts since the caller first reached the target
	Started  time.Time     // when the target started, according to its reactors' clocks; zero if unknown

	// Clock is the time on the target's clock, in seconds, at which the I/O was counted. A rate is
	// the difference between a counter's values in two Figures, divided by the difference between
	// their clocks.
	Clock float64

	Stores  []Store
	Volumes []Volume // volumes and snapshots of all lvstores
	Bdevs   []Bdev   // bdevs that are not volumes
	// Histograms contains the requested histograms that have been read so far. Each call of Read
	// reads only one histogram, so the oldest of n histograms may have been read n calls ago.
	Histograms []Histogram

	NVMf     NVMf
	ISCSI    ISCSI
	Reactors []Reactor
	Buffers  []BufferPool
	Threads  []Thread
	Pollers  []Poller

	// Tenants contains how much of its quota each tenant uses. A Reader does not set it.
	Tenants []TenantAmount

	Calls    int // calls to SPDK for these figures
	Failures []Failure
}

// A Failure describes a call for which the target returned no result. Figures from that call are
// missing, or come from its previous result. If a histogram's bdev does not exist, the failure is
// recorded without a call.
type Failure struct {
	Method string
	Err    error
}

// An Operation contains the counters of one kind of I/O since the bdev was created or its
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

// A TenantAmount describes how much of one limit in its quota a tenant uses.
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
	// Committed is the space, in bytes, that the volumes would occupy if all of them were written
	// completely: the sizes of the volumes plus the space allocated to snapshots. If Committed
	// exceeds the store's size, writes to thin volumes can fail.
	Committed uint64
	// Unsized is the number of volumes with unknown sizes, which Committed does not include.
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
	Allocated             uint64 // in bytes, without the clusters of its ancestors
	AllocatedKnown        bool
	IO                    IO
	HasIO                 bool // whether IO is known
}

// A Bdev describes a bdev that is not a logical volume.
type Bdev struct {
	Name string
	IO   IO
}

// NVMf describes the target's NVMe-oF exports, except the discovery subsystem.
type NVMf struct {
	Known                                   bool
	Subsystems, Namespaces, Hosts, AnyHosts int
	Listeners                               map[string]int // numbers of listeners by transport
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
	AdminQueuePairsTotal, IOQueuePairsTotal uint64 // created so far
	Pending                                 uint64 // commands that are waiting for a free bdev I/O
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

// A BufferPool describes a module's use of a buffer pool. SPDK reports buffer pools since v24.01.
type BufferPool struct {
	Module, Pool        string // Pool is small or large
	FromCache, FromPool uint64
	Retries             uint64 // how often the module had to wait for a free buffer
}

// A Thread describes an SPDK thread. Figures of threads with the same name are added up.
type Thread struct {
	Name                  string
	Busy, Idle            float64 // in seconds
	Active, Timed, Paused uint64  // numbers of pollers
}

// A Poller describes a poller of a thread. Figures of pollers with the same name on the same thread
// are added up.
type Poller struct {
	Thread, Name   string
	Runs, BusyRuns uint64
}
