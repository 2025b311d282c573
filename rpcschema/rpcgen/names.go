package main

import (
	"strings"
	"unicode"
)

// spellings lists the words that are not simply capitalized in Go names. These words are spelled as
// in the documentation of SPDK, NVMe and iSCSI. Every other word begins with a capital letter, so
// bdev_lvol_create becomes BdevLvolCreate. This rule also applies to compounds that the
// documentation does not separate (traddr, hostnqn, cpumask), and to words that SPDK writes only in
// lower case (bdev, lvol, ublk, vhost, uring). ReadOnly and similar words are listed because SPDK
// sometimes writes them as one word and sometimes as two.
var spellings = strings.Fields(`
	ACK AE4DMA AES AESNI AIO ANA API BufSize CBC CHAP CID CM CPU CQ CQE CRC CRC32C CSI CUDA CUSE DAOS DHCHAP DIF DIX DMA DPDK DRAM DSA DSM
	EUI64 FTL GPT GUID IAA ID IDs IG IO IOAT IOMMU IOPS IOQ IOStat IOs IP IQN IRQ ISCSI ISID JSON KB KTLS KiB LBA LBAs LUKS LUN LUNs
	MB MD MDNS MMIO MS MiB NBD NGUID NQN NS NSID NUMA NVMe NVMf OCF OOB PCI PDU PG PID PSK QAT QD QID QoS
	RAID RAID0 RAID1 RAID5f RBD ReadOnly RDMA RPC RW SCSI SQ SRQ TCP TID TLS TOS TSC TSIH TTL UADK UMR URL US UUID UUIDs
	VFIO VFU VID VMD VQ XNVMe XTS
`)

// spellingOf returns the spelling of a word given in any case.
var spellingOf = func() map[string]string {
	table := map[string]string{}
	for _, s := range spellings {
		table[strings.ToLower(s)] = s
	}
	return table
}()

// goName converts a_snake_name or a KEBAB-name to GoName.
func goName(name string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("_- ./:", r) }) {
		b.WriteString(goWord(word))
	}
	s := b.String()
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		s = "X" + s
	}
	return s
}

func goWord(word string) string {
	folded := strings.ToLower(word)
	if known, ok := spellingOf[folded]; ok {
		return known
	}
	return strings.ToUpper(folded[:1]) + folded[1:]
}

// wordsOf splits a Go name into words. A word is an element of spellings, or a capital letter with
// the lower-case letters and digits that follow it. A run of capital letters that is not in
// spellings is one word.
func wordsOf(name string) []string {
	var words []string
	for name != "" {
		n := firstWord(name)
		words = append(words, name[:n])
		name = name[n:]
	}
	return words
}

// firstWord returns the length of the first word of a Go name.
func firstWord(name string) int {
	longest := 0
	for _, s := range spellings {
		if len(s) > longest && strings.HasPrefix(name, s) && endsWord(name[len(s):]) {
			longest = len(s)
		}
	}
	if longest > 0 {
		return longest
	}
	capitals := strings.IndexFunc(name, func(r rune) bool { return !unicode.IsUpper(r) })
	switch {
	case capitals < 0:
		return len(name)
	case capitals > 1: // the last capital letter begins the next word
		return capitals - 1
	}
	if rest := strings.IndexFunc(name[1:], unicode.IsUpper); rest >= 0 {
		return 1 + rest
	}
	return len(name)
}

func endsWord(rest string) bool {
	return rest == "" || !unicode.IsLower(rune(rest[0])) && !unicode.IsDigit(rune(rest[0]))
}

// spelt returns a Go name with every word spelled as in spellings.
func spelt(name string) string {
	var b strings.Builder
	for _, word := range wordsOf(name) {
		b.WriteString(goWord(word))
	}
	return b.String()
}
