package figures

import "time"

// Figures are one reading of a target. They are not changed after they have been returned.
type Figures struct {
	Taken    time.Time     // when the reading ended
	Took     time.Duration // how long it took
	Up       bool          // the target answered, and is past its startup
	Phase    string        // unreachable, startup or runtime
	Release  string        // "" if unknown
	Restarts int           // since the caller first reached the target
	Started  time.Time     // when the target started, by the time that its reactors count; zero if unknown

	// Clock is the target's clock in seconds when it counted the I/O: differences of two readings
	// are rates over this time.
	Clock float64

	Stores  []Store
	Volumes []Volume // of all stores, snapshots too
	Bdevs   []Bdev   // other bdevs
	// Histograms are those that were asked for and have been read. They may be as old as their
	// number of readings.
	Histograms []Histogram

	NVMf     NVMf
	ISCSI    ISCSI
	Reactors []Reactor
	Buffers  []BufferPool
	Threads  []Thread
	Pollers  []Poller

	Calls    int // at SPDK, for this reading
	Failures []Failure
}

// A Failure is a call that the target did not answer with a result. Its figures are missing, or as
// old as the last result. A histogram of a bdev that does not exist fails without a call.
type Failure struct {
	Method string
	Err    error
}

// An Operation counts I/O of one kind since the bdev was created or its statistics were reset.
type Operation struct {
	Bytes   uint64
	Count   uint64
	Latency float64 // sum over all operations, in seconds
}

// An IO counts the I/O of a bdev.
type IO struct {
	Read, Write, Unmap Operation
}

// A Store is an lvstore.
type Store struct {
	Name, UUID, BaseBdev string
	ClusterSize          uint64 // in bytes
	Clusters, Free       uint64 // for data
	Volumes, Snapshots   int
	// Committed is the space in bytes that is in use when every volume has been written in full:
	// the sizes of the volumes, and what the snapshots have allocated. If it is larger than the
	// store, writes to thin volumes can fail.
	Committed uint64
	// Unsized counts volumes whose size is not known yet. Committed leaves them out.
	Unsized int
}

// Size returns the space for data, in bytes.
func (s Store) Size() uint64 { return s.Clusters * s.ClusterSize }

// FreeBytes returns the space that no volume has allocated, in bytes.
func (s Store) FreeBytes() uint64 { return s.Free * s.ClusterSize }

// A Volume is a logical volume or a snapshot.
type Volume struct {
	Store, Name, UUID     string
	Snapshot, Clone, Thin bool
	Degraded              bool
	Size                  uint64 // in bytes; 0 if unknown
	Allocated             uint64 // in bytes, without what its parents have
	AllocatedKnown        bool
	IO                    IO
	HasIO                 bool // IO is known
}

// A Bdev is a bdev that is not a logical volume.
type Bdev struct {
	Name string
	IO   IO
}

// NVMf describes NVMe-oF. The discovery subsystem does not count.
type NVMf struct {
	Known                                   bool
	Subsystems, Namespaces, Hosts, AnyHosts int
	Listeners                               map[string]int // by transport
	PollGroups                              []PollGroup
}

// Controllers returns the number of connected controllers: each has one admin queue pair.
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
	AdminQueuePairs, IOQueuePairs           uint64 // at present
	AdminQueuePairsTotal, IOQueuePairsTotal uint64 // created so far
	Pending                                 uint64 // commands that wait for a free bdev I/O
	Completed                               uint64
}

// ISCSI describes iSCSI.
type ISCSI struct {
	Known             bool
	TargetNodes, LUNs int
	Connections       int
}

// A Reactor is a core that the target runs on.
type Reactor struct {
	Core       uint64
	Busy, Idle float64 // in seconds
	Threads    int
}

// A BufferPool is a module's use of a pool of buffers. SPDK reports it since v24.01.
type BufferPool struct {
	Module, Pool        string // small, large
	FromCache, FromPool uint64
	Retries             uint64 // times that no buffer was free and the module had to wait
}

// A Thread is an SPDK thread. Threads of the same name are added up.
type Thread struct {
	Name                  string
	Busy, Idle            float64 // in seconds
	Active, Timed, Paused uint64  // pollers
}

// A Poller is a poller of a thread. Pollers of the same name on the same thread are added up.
type Poller struct {
	Thread, Name   string
	Runs, BusyRuns uint64
}
