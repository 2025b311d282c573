package class

import (
	"maps"
	"slices"
)

// A Documented parameter is a parameter as the manual lists it.
type Documented struct {
	Name    string
	Values  string // the allowed values
	Example string
	Meaning string
	// Mutable parameters may also be in a VolumeAttributesClass.
	Mutable bool
}

// reference has what the parameters mean, in the order of the manual. Values are in the tables with which they are parsed.
var reference = []Documented{
	{Name: "target", Example: "storage-1,storage-2", Meaning: "create volumes on these storage servers only"},
	{Name: "targetLabels", Example: "disk=nvme,rack=7", Meaning: "create volumes only on storage servers that have all of these `labels` in `config.json`"},
	{Name: "lvstore", Example: "lvs0", Meaning: "create volumes in lvstores of these names only"},
	{Name: "placement", Example: "most-free", Meaning: "which of several lvstores gets a volume: `spread` chooses at random, in proportion to free space; `most-free` the one with the most room; `binpack` the one with the least"},
	{Name: "thin", Example: "false", Meaning: "`false` allocates the whole space at once"},
	{Name: "clearMethod", Example: "write_zeroes", Meaning: "how freed space is cleared, see [deleted data](../deploy/kubernetes/README.md#deleted-data)"},
	{Name: "fsType", Example: "xfs", Meaning: "file system of mounted volumes, ext4 by default, see [file systems](../deploy/kubernetes/README.md#file-systems). `csi.storage.k8s.io/fstype` means the same"},
	{Name: "mkfsOptions", Example: "-m 5", Meaning: "options of mkfs, see [file systems](../deploy/kubernetes/README.md#file-systems)"},
	{Name: "filesystemUUID", Example: "volume", Meaning: "each xfs or btrfs gets the UUID of its volume, also a copy"},
	{Name: "authentication", Example: "dhchap", Meaning: "nodes must authenticate to the storage server, see [Authentication of nodes](host-authentication.md)"},
	{Name: "encryption", Example: "luks2", Meaning: "nodes encrypt the volume, see [Encrypted volumes](encryption.md)"},
	{Name: "encryptionDiscards", Example: "true", Meaning: "pass discards of encrypted volumes on to the storage server, which shows which blocks are free"},
	{Name: "qosIOPS", Example: "5000", Meaning: "limit of reads and writes together per second"},
	{Name: "qosMiBPerSecond", Example: "200", Meaning: "limit of the throughput of reads and writes together"},
	{Name: "qosReadMiBPerSecond", Example: "100", Meaning: "limit of the throughput of reads"},
	{Name: "qosWriteMiBPerSecond", Example: "100", Meaning: "limit of the throughput of writes"},
	{Name: "ctrl_loss_tmo", Example: "600", Meaning: "how long a node tries to reach a lost storage server before it fails I/O and removes the device"},
	{Name: "fast_io_fail_tmo", Example: "30", Meaning: "time after which I/O to a lost storage server fails while the node still tries to reach it; without it, not before `ctrl_loss_tmo`"},
	{Name: "reconnect_delay", Example: "2", Meaning: "pause between such tries"},
	{Name: "keep_alive_tmo", Example: "5", Meaning: "time after which a storage server that does not answer counts as lost"},
	{Name: "nr_io_queues", Example: "4", Meaning: "I/O queues of each connection"},
	{Name: "queue_size", Example: "128", Meaning: "I/O commands in each queue"},
	{Name: "hdr_digest", Example: "true", Meaning: "checksums of headers on NVMe/TCP connections, which cost processor time"},
	{Name: "data_digest", Example: "true", Meaning: "checksums of data on NVMe/TCP connections, which cost processor time"},
}

// Reference returns all parameters of a StorageClass, for the manual.
func Reference() []Documented {
	all := slices.Clone(reference)
	for i := range all {
		for _, table := range []map[string]parameter{parameters, limits, nvmeOptions} {
			if p, ok := table[all[i].Name]; ok {
				all[i].Values = p.values
			}
		}
		_, all[i].Mutable = limits[all[i].Name]
	}
	return all
}

// names returns all parameters in the form in which the manual names them.
func names() []string {
	all := map[string]parameter{}
	for _, table := range []map[string]parameter{parameters, limits, nvmeOptions} {
		maps.Copy(all, table)
	}
	delete(all, "fstype") // spdk-csi's spelling
	return slices.Sorted(maps.Keys(all))
}
