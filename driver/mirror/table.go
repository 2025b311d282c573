package mirror

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RegionBytes is the size of a region of the log. Head and size limit a volume to about 28 TiB.
const RegionBytes = 1 << 20

const (
	headSectors   = HeadBytes / sectorBytes
	logSectors    = (HeadBytes - logOffset) / sectorBytes
	regionSectors = RegionBytes / sectorBytes
	// logHeadBytes is the size of the dm-log header before the bitmap.
	logHeadBytes = 1024
	maxRegions   = (HeadBytes - logOffset - logHeadBytes) * 8
)

// A target is the single line of a device-mapper table. Its length is in sectors.
type target struct {
	kind   string
	length uint64
	params string
}

// A leg describes one leg of a mirror: the number of its device, and the offset of its data in
// sectors.
type leg struct {
	number string
	offset uint64
}

// A table is a dm-mirror table with two legs. Regions are copied from the first leg, and all reads
// and writes of a marked region go only to the first leg.
type table struct {
	// log is the number of the log's device. If log is empty, the log is in memory, and no region
	// is marked.
	log  string
	legs [2]leg
	// keepLog means that the second leg is missing. A write that fails on that leg marks its region
	// and succeeds. Without keepLog, the mirror holds a write that fails on one leg.
	keepLog bool
}

func (t table) target(length uint64) target {
	// Do not pass sync or nosync for a log on disk, because each resume would then overwrite its
	// marks.
	words := []string{"core", "2", strconv.Itoa(regionSectors), "nosync"}
	if t.log != "" {
		words = []string{"disk", "2", t.log, strconv.Itoa(regionSectors)}
	}
	words = append(words, strconv.Itoa(len(t.legs)))
	for _, l := range t.legs {
		words = append(words, l.number, strconv.FormatUint(l.offset, 10))
	}
	if t.keepLog {
		words = append(words, "2", "handle_errors", "keep_log")
	} else {
		words = append(words, "1", "handle_errors")
	}
	return target{"mirror", length, strings.Join(words, " ")}
}

// errTable means that this package cannot have loaded a table.
var errTable = errors.New("not a table of this driver")

// parseTable parses the table of a mirror as the kernel reports it. It accepts only tables that
// this package loads.
func parseTable(t target) (table, error) {
	words := strings.Fields(t.params)
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		w := words[0]
		words = words[1:]
		return w
	}
	var parsed table
	var err error
	kind, _, first, _, _ := next(), next(), next(), next(), next() // the skipped parts are compared below
	if kind == "disk" {
		parsed.log = first
	}
	for i := range parsed.legs {
		parsed.legs[i].number = next()
		parsed.legs[i].offset, err = strconv.ParseUint(next(), 10, 64)
		if err != nil {
			return table{}, fmt.Errorf("%w: %s", errTable, t.params)
		}
	}
	parsed.keepLog = slices.Contains(words, "keep_log")
	if same := parsed.target(t.length); t.kind != "mirror" || same.params != strings.Join(strings.Fields(t.params), " ") {
		return table{}, fmt.Errorf("%w: %s %s", errTable, t.kind, t.params)
	}
	return parsed, nil
}

// A progress is the status of a running mirror in the kernel.
type progress struct {
	// total is the number of regions, and synced is the number of regions that are the same on both
	// legs.
	synced, total uint64
	// alive reports, for each leg, whether all of its I/O has succeeded since the table was loaded.
	alive [2]bool
	// logFailed reports whether the log could not be written.
	logFailed bool
}

func (p progress) complete() bool {
	return p.total > 0 && p.synced == p.total && p.alive[0] && p.alive[1] && !p.logFailed
}

// parseProgress parses a mirror's status, such as "2 253:1 253:2 100/128 1 AA 3 disk 253:3 A".
func parseProgress(status string) (progress, error) {
	fail := func() (progress, error) { return progress{}, fmt.Errorf("unknown status of a mirror: %q", status) }
	words := strings.Fields(status)
	if len(words) < 8 || words[0] != "2" || words[4] != "1" || len(words[5]) != 2 {
		return fail()
	}
	var p progress
	synced, total, _ := strings.Cut(words[3], "/")
	var err, err2 error
	p.synced, err = strconv.ParseUint(synced, 10, 64)
	p.total, err2 = strconv.ParseUint(total, 10, 64)
	if err != nil || err2 != nil {
		return fail()
	}
	for i := range p.alive {
		p.alive[i] = words[5][i] == 'A'
	}
	switch log := words[6:]; {
	case log[0] == "1" && log[1] == "core":
	case log[0] == "3" && len(log) == 4 && log[1] == "disk":
		p.logFailed = log[3] != "A"
	default:
		return fail()
	}
	return p, nil
}
