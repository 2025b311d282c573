package main

import "strings"

// initialisms are spelt so in Go names. SPDK's areas (bdev, nvmf, iscsi, lvol)
// stay words: bdev_lvol_create is BdevLvolCreate.
var initialisms = map[string]string{
	"ana": "ANA", "api": "API", "cpu": "CPU", "crc": "CRC", "dif": "DIF", "dma": "DMA", "dhchap": "DHCHAP", "eui64": "EUI64",
	"id": "ID", "ids": "IDs", "io": "IO", "ios": "IOs", "ip": "IP", "iops": "IOPS", "json": "JSON", "lba": "LBA", "lbas": "LBAs", "lun": "LUN", "luns": "LUNs", "mb": "MB", "mib": "MiB",
	"nguid": "NGUID", "nqn": "NQN", "ns": "NS", "nsid": "NSID", "numa": "NUMA", "nvme": "NVMe", "pci": "PCI", "psk": "PSK", "qd": "QD",
	"qos": "QoS", "rdma": "RDMA", "rpc": "RPC", "rw": "RW", "scsi": "SCSI", "tcp": "TCP", "tls": "TLS", "tsc": "TSC", "ttl": "TTL", "us": "US", "url": "URL", "uuid": "UUID",
	"uuids": "UUIDs", "md": "MD", "iommu": "IOMMU", "vmd": "VMD", "pid": "PID", "oob": "OOB", "ack": "ACK", "opal": "Opal", "dsm": "DSM", "ftl": "FTL", "rbd": "RBD", "chap": "CHAP",
}

// goName turns a_snake_name, a camelName or a KEBAB-name into GoName.
func goName(name string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool {
		return r == '_' || r == '-' || r == ' ' || r == '.' || r == '/' || r == ':'
	}) {
		if known, ok := initialisms[strings.ToLower(word)]; ok {
			b.WriteString(known)
			continue
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	s := b.String()
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		s = "X" + s
	}
	return s
}
