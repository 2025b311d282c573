package class

import (
	"slices"
	"strconv"
	"strings"
)

// A Parameter describes a StorageClass parameter: its row in the manual, and how to parse its
// value.
type Parameter struct {
	Name    string
	Values  string // the allowed values, for the manual and for errors
	Example string
	Meaning string
	// Mutable means that the parameter may also be set in a VolumeAttributesClass, because it can
	// change after the volume is created.
	Mutable bool

	forNodes bool                      // nodes read the parameter from the volume context; see package request
	set      func(*Class, string) bool // returns false if the value is not allowed
}

// parameters lists all parameters, in the manual's order.
var parameters = []Parameter{
	{
		Name: "target", Values: "the name of a target in config.json, or a comma-separated list of names", Example: "storage-1,storage-2",
		Meaning: "create volumes only on these storage servers",
		set:     func(c *Class, v string) bool { return setList(&c.Targets, v) },
	},
	{
		Name: "targetLabels", Values: "labels of targets in config.json, such as disk=nvme,rack=7", Example: "disk=nvme,rack=7",
		Meaning: "create volumes only on storage servers that have all of these `labels` in `config.json`",
		set:     setTargetLabels,
	},
	{
		Name: "lvstore", Values: "the name of an lvstore, or a comma-separated list of names", Example: "lvs0",
		Meaning: "create volumes only in lvstores with these names",
		set:     func(c *Class, v string) bool { return setList(&c.Stores, v) },
	},
	{
		Name: "placement", Values: "spread (the default), most-free or binpack", Example: "most-free",
		Meaning: "how to choose among several lvstores: `spread` chooses at random, in proportion to free space; `most-free` chooses the lvstore with the most space for volumes, and `binpack` the one with the least",
		set: func(c *Class, v string) bool {
			c.Strategy = Strategy(v)
			return slices.Contains([]Strategy{Spread, MostFree, BinPack}, c.Strategy)
		},
	},
	{
		Name: "thin", Values: "true (the default) or false", Example: "false",
		Meaning: "`false` allocates all space immediately",
		set: func(c *Class, v string) bool {
			thin, err := strconv.ParseBool(v)
			c.Thick = !thin
			return err == nil
		},
	},
	{
		Name: "replicas", Values: "1 (the default) or 2", Example: "2",
		Meaning: "number of storage servers that store a copy of the volume. 2 is experimental; see [Replicated volumes](replication.md)",
		set: func(c *Class, v string) bool {
			c.Replicas = 1
			if v == "2" {
				c.Replicas = 2
			}
			return v == "1" || v == "2"
		},
	},
	{
		Name: "replicaSpread", Values: "the name of a label of targets in config.json, such as zone", Example: "zone",
		Meaning: "with `replicas: \"2\"`: both storage servers have this label in `config.json`, with different values",
		set: func(c *Class, v string) bool {
			c.ReplicaSpread = strings.TrimSpace(v)
			return c.ReplicaSpread != ""
		},
	},
	{
		Name: "clearMethod", Values: "zeroes (the default), write_zeroes, or one that exposes the data of deleted volumes: unmap-may-expose-deleted-data, none-exposes-deleted-data", Example: "write_zeroes",
		Meaning: "how freed space is cleared; see [deleted data](csi-deleted-data.md)",
		set:     setClear,
	},
	{
		Name: "fsType", Values: "ext4, xfs or btrfs", Example: "xfs", forNodes: true,
		Meaning: "file system of mounted volumes, ext4 by default; see [file systems](csi-volumes.md#file-systems). `csi.storage.k8s.io/fstype` is a synonym",
		set:     setFSType,
	},
	{
		Name: "mkfsOptions", Values: "mkfs options, such as -m reflink=0", Example: "-m 5", forNodes: true,
		Meaning: "mkfs options; see [file systems](csi-volumes.md#file-systems)",
		set: func(c *Class, v string) bool {
			c.MkfsOptions = v
			return strings.TrimSpace(v) != ""
		},
	},
	{
		Name: "filesystemUUID", Values: "volume; omit it to keep the UUID that a copy inherits from its source", Example: "volume", forNodes: true,
		Meaning: "gives each xfs or btrfs file system the UUID of its volume, even in a copy",
		set: func(c *Class, v string) bool {
			c.VolumeUUID = v == "volume"
			return c.VolumeUUID
		},
	},
	{
		Name: "authentication", Values: "dhchap for NVMe-oF or chap for iSCSI; omit it for no authentication", Example: "dhchap",
		Meaning: "nodes must authenticate to the storage server; see [Node authentication](host-authentication.md)",
		set: func(c *Class, v string) bool {
			c.Authentication = Authentication(v)
			return slices.Contains([]Authentication{DHCHAP, CHAP}, c.Authentication)
		},
	},
	{
		Name: "encryption", Values: "luks2; omit it for no encryption", Example: "luks2", forNodes: true,
		Meaning: "nodes encrypt the volume; see [Encrypted volumes](encryption.md)",
		set: func(c *Class, v string) bool {
			c.Encryption = Encryption(v)
			return c.Encryption == LUKS2
		},
	},
	{
		Name: "encryptionDiscards", Values: "true or false (the default)", Example: "true", forNodes: true,
		Meaning: "`true` passes discards of encrypted volumes on to the storage server, which reveals which blocks are free",
		set: func(c *Class, v string) bool {
			c.EncryptionDiscards = v == "true"
			return v == "true" || v == "false"
		},
	},
	{
		Name: "qosIOPS", Values: "a multiple of 1000, or 0 for no limit", Example: "5000", Mutable: true,
		Meaning: "maximum number of reads and writes per second, combined",
		set:     func(c *Class, v string) bool { return setLimit(&c.Limits.IOPS, v, stepIOPS) },
	},
	{
		Name: "qosMiBPerSecond", Values: "a whole number, or 0 for no limit", Example: "200", Mutable: true,
		Meaning: "maximum throughput of reads and writes, combined",
		set:     func(c *Class, v string) bool { return setLimit(&c.Limits.MiBPerSecond, v, 1) },
	},
	{
		Name: "qosReadMiBPerSecond", Values: "a whole number, or 0 for no limit", Example: "100", Mutable: true,
		Meaning: "maximum throughput of reads",
		set:     func(c *Class, v string) bool { return setLimit(&c.Limits.ReadMiBPerSecond, v, 1) },
	},
	{
		Name: "qosWriteMiBPerSecond", Values: "a whole number, or 0 for no limit", Example: "100", Mutable: true,
		Meaning: "maximum throughput of writes",
		set:     func(c *Class, v string) bool { return setLimit(&c.Limits.WriteMiBPerSecond, v, 1) },
	},
	seconds(Parameter{Name: "ctrl_loss_tmo", Example: "600", Meaning: "how long a node tries to reach a lost storage server before it fails I/O and removes the device"}, 86400, "-1"),
	seconds(Parameter{Name: "fast_io_fail_tmo", Example: "30", Meaning: "time after which I/O to a lost storage server fails while the node still tries to reach it. By default, I/O fails only after `ctrl_loss_tmo`"}, 86400, "-1"),
	seconds(Parameter{Name: "reconnect_delay", Example: "2", Meaning: "pause between two attempts to reach a lost storage server"}, 3600, ""),
	seconds(Parameter{Name: "keep_alive_tmo", Example: "5", Meaning: "time after which a storage server that does not respond counts as lost"}, 3600, ""),
	number(Parameter{Name: "nr_io_queues", Example: "4", Meaning: "number of I/O queues of each connection"}, "", 1, 1024, ""),
	number(Parameter{Name: "queue_size", Example: "128", Meaning: "number of I/O commands in each queue"}, "", 16, 1024, ""),
	digest(Parameter{Name: "hdr_digest", Example: "true", Meaning: "checksums of headers on NVMe/TCP connections, which cost CPU time"}),
	digest(Parameter{Name: "data_digest", Example: "true", Meaning: "checksums of data on NVMe/TCP connections, which cost CPU time"}),
}

// Reference returns all parameters of a StorageClass, for the manual.
func Reference() []Parameter { return slices.Clone(parameters) }

// find returns the parameter with this name, which may be in the spelling of SPDK's spdk-csi.
func find(name string) (Parameter, bool) {
	if name == "fstype" {
		name = "fsType"
	}
	i := slices.IndexFunc(parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return Parameter{}, false
	}
	return parameters[i], true
}

// names returns the names of all parameters, or only of mutable parameters, for use in an error.
func names(mutable bool) string {
	var all []string
	for _, p := range parameters {
		if p.Mutable || !mutable {
			all = append(all, p.Name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// setList parses comma-separated names.
func setList(list *[]string, v string) bool {
	for name := range strings.SplitSeq(v, ",") {
		*list = append(*list, strings.TrimSpace(name))
	}
	return !slices.Contains(*list, "")
}

// setTargetLabels parses comma-separated key=value pairs.
func setTargetLabels(c *Class, v string) bool {
	c.TargetLabels = map[string]string{}
	for pair := range strings.SplitSeq(v, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if _, twice := c.TargetLabels[key]; !ok || key == "" || twice {
			return false
		}
		c.TargetLabels[key] = value
	}
	return true
}

func setFSType(c *Class, v string) bool {
	c.FSType = v
	return v == "ext4" || v == "xfs" || v == "btrfs"
}

// setClear treats unmap, the default in earlier versions, as the current default.
func setClear(c *Class, v string) bool {
	if v == "unmap" {
		v = string(ClearZeroes)
	}
	c.Clear = Clear(v)
	return slices.Contains([]Clear{ClearZeroes, ClearWriteZeroes, ClearUnmap, ClearNone}, c.Clear)
}
