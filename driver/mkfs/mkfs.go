package mkfs

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The file systems.
const (
	Ext4  = "ext4"
	XFS   = "xfs"
	Btrfs = "btrfs"
)

// Types lists the file systems, starting with the default.
var Types = []string{Ext4, XFS, Btrfs}

// ErrOption means that a file system or mkfs option is not supported.
var ErrOption = errors.New("invalid mkfs option")

// CheckType fails for file system types that volumes cannot have. An empty type means the default.
func CheckType(fsType string) error {
	if fsType != "" && !slices.Contains(Types, fsType) {
		return fmt.Errorf("%w: file system type %q: use %s", ErrOption, fsType, strings.Join(Types, ", "))
	}
	return nil
}

// A value describes the values that an option may have.
type value struct {
	form  string
	valid func(string) bool
}

// An option has one value, or several comma-separated values of the form key=value.
type option struct {
	value
	keys map[string]value // nil if the option has one value
	list bool             // several comma-separated values
}

func number(least, most int) value {
	return value{fmt.Sprintf("%d to %d", least, most), func(s string) bool {
		n, err := strconv.Atoi(s)
		return err == nil && strconv.Itoa(n) == s && n >= least && n <= most
	}}
}

func oneOf(all ...string) value {
	return value{strings.Join(all, " or "), func(s string) bool { return slices.Contains(all, s) }}
}

func label(most int) value {
	form := regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,%d}$`, most-1))
	return value{fmt.Sprintf("1 to %d letters, digits and _.-", most), form.MatchString}
}

func one(v value) option { return option{value: v} }

var allowed = map[string]map[string]option{
	Ext4: {
		"-E": {keys: map[string]value{"stride": number(1, 1<<20), "stripe_width": number(1, 1<<20)}},
		"-I": one(oneOf("256", "512", "1024")),
		"-J": {keys: map[string]value{"size": number(4, 10240)}},
		"-L": one(label(16)),
		"-O": {value: oneOf("project", "quota", "large_dir", "verity", "encrypt", "casefold"), list: true},
		"-T": one(oneOf("small", "news", "largefile", "largefile4")),
		"-i": one(number(4096, 64<<20)),
		"-m": one(number(0, 50)),
	},
	XFS: {
		"-L": one(label(12)),
		"-d": {keys: map[string]value{"agcount": number(1, 1024), "su": sizeOfBytes, "sw": number(1, 1024)}},
		"-i": {keys: map[string]value{"size": oneOf("512", "1024", "2048"), "maxpct": number(0, 100), "sparse": flag}},
		"-l": {keys: map[string]value{"size": sizeOfBytes, "su": sizeOfBytes}},
		"-m": {keys: map[string]value{"reflink": flag, "bigtime": flag, "rmapbt": flag, "finobt": flag, "inobtcount": flag}},
		"-n": {keys: map[string]value{"size": oneOf("4096", "8192", "16384", "32768", "65536")}},
		"-s": {keys: map[string]value{"size": oneOf("512", "4096")}},
	},
	Btrfs: {
		"--checksum": one(oneOf("crc32c", "xxhash", "sha256", "blake2")),
		"-L":         one(label(255)),
		"-d":         one(oneOf("single", "dup")),
		"-m":         one(oneOf("single", "dup")),
		"-n":         one(oneOf("4096", "8192", "16384", "32768", "65536")),
	},
}

var (
	flag        = oneOf("0", "1")
	sizeOfBytes = value{"a number with k or m", regexp.MustCompile(`^[1-9][0-9]{0,5}[km]$`).MatchString}
)

// parse splits options into flags and their values. It rejects options and values that are not on
// the list.
func parse(fsType, options string) (map[string]string, error) {
	if err := CheckType(fsType); err != nil {
		return nil, err
	}
	if fsType == "" {
		fsType = Ext4
	}
	known := allowed[fsType]
	given, words := map[string]string{}, strings.Fields(options)
	for len(words) > 0 {
		name := words[0]
		o, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("%w: mkfs.%s %s is not allowed: use %s", ErrOption, fsType, name, describe(known))
		}
		if _, twice := given[name]; twice {
			return nil, fmt.Errorf("%w: mkfs.%s %s is specified twice", ErrOption, fsType, name)
		}
		if len(words) == 1 || !o.allows(words[1]) {
			return nil, fmt.Errorf("%w: the value of mkfs.%s %s is not allowed: use %s", ErrOption, fsType, name, o)
		}
		given[name], words = words[1], words[2:]
	}
	return given, nil
}

func (o option) allows(text string) bool {
	if o.keys == nil && !o.list {
		return o.valid(text)
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, v, _ := strings.Cut(part, "=")
		if seen[key] {
			return false
		}
		seen[key] = true
		if o.list && !o.valid(part) {
			return false
		}
		if known, ok := o.keys[key]; !o.list && (!ok || !known.valid(v)) {
			return false
		}
	}
	return true
}

// String describes the values that the option accepts.
func (o option) String() string {
	if o.list {
		return strings.ReplaceAll(o.form, " or ", ",")
	}
	if o.keys == nil {
		return o.form
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(o.keys)) {
		all = append(all, key+"= "+o.keys[key].form)
	}
	return strings.Join(all, ", ")
}

func describe(known map[string]option) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		all = append(all, fmt.Sprintf("%s (%s)", name, known[name]))
	}
	return strings.Join(all, "; ")
}

// Check rejects options that a class must not set for a file system. Errors wrap [ErrOption] and
// list the allowed options.
func Check(fsType, options string) error {
	_, err := parse(fsType, options)
	return err
}

// New describes a file system to create.
type New struct {
	Type    string
	Options string // the class's options; see [Check]
	UUID    string // empty for a random UUID
	// Again means that an earlier mkfs was interrupted, so this mkfs must overwrite its results.
	Again bool
}

// Args returns mkfs's arguments without the device, chosen for thin volumes that can grow:
//   - No discard: the device is empty, and a discard of a large thin volume takes minutes.
//   - ext4 blocks of 4 KiB: for a small volume, mkfs would choose 1 KiB, which remains when the
//     volume grows.
//   - ext4 inode tables and journal are not zeroed, because SPDK allocates clusters for written
//     zeroes. The tables are marked as unused, and blocks of the journal have checksums.
//   - No ext4 blocks are reserved for root, unless the options say so.
func (n New) Args() ([]string, error) {
	given, err := parse(n.Type, n.Options)
	if err != nil {
		return nil, err
	}
	args := []string{"-q"}
	switch n.Type {
	case XFS:
		args = append(args, "-K")
		if n.UUID != "" {
			args = append(args, "-m", "uuid="+n.UUID)
		}
	case Btrfs:
		args = append(args, "-K")
		if n.UUID != "" {
			args = append(args, "-U", n.UUID)
		}
	default:
		// mkfs.ext4 uses only the last -E option.
		extended := "nodiscard,lazy_itable_init=1,lazy_journal_init=1"
		if more := given["-E"]; more != "" {
			extended += "," + more
			delete(given, "-E")
		}
		args = append(args, "-b", "4096", "-m", "0", "-E", extended)
		if n.UUID != "" {
			args = append(args, "-U", n.UUID)
		}
	}
	if n.Again && n.Type != Ext4 {
		args = append(args, "-f")
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		args = append(args, name, given[name])
	}
	return args, nil
}
