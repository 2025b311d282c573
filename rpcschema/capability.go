package rpcschema

// A Capability is SPDK behavior that was introduced in a known release and that code outside
// rpcschema depends on. The schema itself records the releases of methods, parameters and result
// members. Use [Window.Has] for methods, parameters and members, unless a call depends on several
// of them.
type Capability struct {
	since Release
	// source names the file and commit in SPDK's repository, or the targets that showed the
	// behavior.
	source string
}

// Since returns the first release that has the capability, for messages.
func (c Capability) Since() Release { return c.since }

// Has reports whether release r has the capability. An unknown release has no capabilities.
func (r Release) Has(c Capability) bool { return r.Known() && !r.Before(c.since) }

// These are all the capabilities that code depends on. Outside rpcschema, only tests compare
// releases.
var (
	// GrowsBeyondParent means that a volume may be larger than its parent. On earlier releases,
	// such as v24.01, reads past the parent's end fail with an I/O error, as do writes of less than
	// a cluster in that range.
	GrowsBeyondParent = Capability{Release{24, 5}, "lib/blob/blob_bs_dev.c: 00311abc73, for chains b357ad48a5"}

	// InflatesBeyondParent means that bdev_lvol_inflate works for a volume that is larger than its
	// parent. On v24.01, inflating such a volume crashes the target. The releases between v24.01
	// and v26.05 have not been tested.
	InflatesBeyondParent = Capability{Release{26, 5}, "lib/blob/blobstore.c: bs_cluster_needs_allocation; seen on real v24.01 and v26.05"}

	// SetsParent means that SPDK has bdev_lvol_set_parent.
	SetsParent = Capability{Release{24, 5}, "module/bdev/lvol/vbdev_lvol_rpc.c: 99ffb3d9c4"}

	// CountsClusters means that bdev_get_bdevs returns a volume's number of allocated clusters.
	CountsClusters = Capability{Release{24, 5}, "lib/blob/blobstore.c: 2dbbbbd85e, module/bdev/lvol/vbdev_lvol.c: 5daa879140"}

	// ListsClusters means that bdev_lvol_get_lvols returns a volume's number of allocated clusters.
	ListsClusters = Capability{Release{25, 1}, "module/bdev/lvol/vbdev_lvol_rpc.c: a70c3a90b6"}

	// ListsDuringDeletion means that bdev_lvol_get_lvols works while volumes are being deleted.
	// Earlier releases crash when they list a volume whose clusters are being cleared.
	ListsDuringDeletion = Capability{Release{24, 9}, "module/bdev/lvol/vbdev_lvol_rpc.c: afcb180bcb, https://github.com/spdk/spdk/issues/3505"}

	// QueuesSubsystemChanges means that SPDK queues concurrent changes to an NVMe-oF subsystem.
	// Earlier releases refuse a change while another one is in progress.
	QueuesSubsystemChanges = Capability{Release{24, 5}, "lib/nvmf/subsystem.c: 2881f7f69c"}

	// ChangesHostKeys means that SPDK authenticates hosts and can change their keys
	// (nvmf_subsystem_set_keys). v24.05 only authenticates them.
	ChangesHostKeys = Capability{Release{24, 9}, "lib/nvmf/nvmf_rpc.c: 8a4b722644"}

	// SetsANAGroup means that SPDK has nvmf_subsystem_set_ns_ana_group.
	SetsANAGroup = Capability{Release{24, 9}, "lib/nvmf/nvmf_rpc.c: 698b2423d5"}

	// BoundsHistograms means that bdev_enable_histogram has the options granularity, min_nsec and
	// max_nsec.
	BoundsHistograms = Capability{Release{25, 5}, "lib/bdev/bdev_rpc.c: 1ca1a8c719"}

	// CountsIOByNames means that bdev_get_iostat accepts several names.
	CountsIOByNames = Capability{Release{26, 1}, "lib/bdev/bdev_rpc.c: 8917de842c"}

	// RecordsPageSize means that the super block of an lvstore contains the size of metadata pages.
	// bdev_lvol_grow_lvstore divides by this size. Therefore, it crashes the target if the lvstore
	// was created by an earlier release.
	RecordsPageSize = Capability{Release{25, 5}, "lib/blob/blobstore.c: 2dc4a231ac"}

	// AcceptsLargeRequests means that a request may contain up to 256 KiB and 8,192 values. In
	// earlier releases, a request may contain only 32 KiB and 1,024 values.
	AcceptsLargeRequests = Capability{Release{26, 5}, "lib/jsonrpc/jsonrpc_internal.h: 5db1aed445"}
)

// Future is later than all other releases. It lacks every method and member that any release has
// removed.
var Future = Release{99, 12}
