package connect

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// These are keys of the context map. The first seven keys are the same as in SPDK's spdk-csi, so
// volumes created by SPDK's spdk-csi keep working.
const (
	KeyTargetType = "targetType"
	KeyTargetAddr = "targetAddr"
	KeyTargetPort = "targetPort"
	KeyNQN        = "nqn"
	KeyIQN        = "iqn"
	KeyModel      = "model"
	KeyLvolSize   = "lvolSize"
	KeyNSUUID     = "nsUUID"
	KeyLoopDir    = "loopDir"
	// KeyTargetAddrs lists the target's addresses if it has several, in the format of
	// [FormatAddresses]. In that case KeyTargetAddr and KeyTargetPort contain the first address,
	// for nodes that run earlier versions.
	KeyTargetAddrs = "targetAddrs"
	// KeyMultipath means that the export reports ANA, and also admits this node under the name
	// [Host.Multipath].
	KeyMultipath = "multipathHost"
)

// Transport is the protocol that a node uses to reach an export.
type Transport string

// These are the transports. See [ParseExport] for their spellings in a context map.
const (
	TCP   Transport = "tcp"
	RDMA  Transport = "rdma"
	ISCSI Transport = "iscsi"
	Loop  Transport = "loop"
)

// An Export describes how a target exports a volume. Callers can store it as JSON to record what
// they connected; the JSON contains no secrets.
type Export struct {
	Transport Transport `json:"transport"`
	Address   string    `json:"address,omitzero"` // IP address or host name
	Port      string    `json:"port,omitzero"`
	// More contains additional addresses of the export. A node with native multipath connects to
	// all addresses. Other nodes connect to the first address that works.
	More []Address `json:"more,omitzero"`
	NQN  string    `json:"nqn,omitzero"`
	IQN  string    `json:"iqn,omitzero"`
	// NSUUID is the namespace's UUID in lower case. It is empty for volumes created by SPDK's
	// spdk-csi, whose namespace is found by LegacyUUID.
	NSUUID string `json:"nsUUID,omitzero"`
	// LegacyUUID is the UUID of the lvol, which SPDK's spdk-csi put into the model number and the
	// NQN.
	LegacyUUID string `json:"legacyUUID,omitzero"`
	// SizeBytes is the size at creation, or 0 if unknown. Volumes can grow, so devices may be
	// larger.
	SizeBytes int64 `json:"sizeBytes,omitzero"`
	// Multipath is the value of [KeyMultipath].
	Multipath bool `json:"multipath,omitzero"`
	// Options contains the options for the kernel's NVMe controllers that the volume's StorageClass
	// sets, keyed by the kernel's names. The class's options override [NVMeOptions].
	Options map[string]string `json:"options,omitzero"`
	LoopDir string            `json:"loopDir,omitzero"`
	// Authentication is the method that this node must use to authenticate, with the keys from
	// [Export.WithKeys]. If BothAuthenticate is set, the target must also authenticate.
	Authentication   hostauth.Method `json:"authentication,omitzero"`
	BothAuthenticate bool            `json:"authenticateTarget,omitzero"`

	keys *hostauth.Keys
}

// An Address is one of several addresses of a target.
type Address struct {
	Addr string `json:"address"` // IP address or host name
	Port string `json:"port"`
	// Topology contains the labels that a node must have to use the address. The addresses in
	// [Export.More] have no topology.
	Topology map[string]string `json:"topology,omitzero"`
}

// FormatAddresses formats addresses as the value of [KeyTargetAddrs].
func FormatAddresses(all []Address) string {
	text, err := json.Marshal(all, json.Deterministic(true))
	if err != nil {
		panic(err) // cannot fail for strings and maps of strings
	}
	return string(text)
}

// parseAddresses parses the value of [KeyTargetAddrs], and returns the addresses for a node with
// these labels.
func parseAddresses(text string, node map[string]string) ([]Address, error) {
	var all, ours []Address
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, invalid(KeyTargetAddrs, text, `a list such as [{"address": "192.0.2.11", "port": "4420"}]`)
	}
	for _, a := range all {
		if a.isFor(node) {
			ours = append(ours, Address{Addr: a.Addr, Port: a.Port})
		}
	}
	if len(ours) == 0 {
		return nil, fmt.Errorf("%w: none of the target's addresses, %s, is meant for a node with the labels %v: compare the topology of the addresses in config.json with the node's --topology", ErrInvalidExport, text, node)
	}
	return ours, nil
}

func (a Address) isFor(node map[string]string) bool {
	for key, value := range a.Topology {
		if node[key] != value {
			return false
		}
	}
	return true
}

// paths returns a copy of the export for each of its addresses. Each copy contains only that
// address.
func (e Export) paths() []Export {
	all := []Export{e}
	for _, a := range e.More {
		path := e
		path.Address, path.Port = a.Addr, a.Port
		all = append(all, path)
	}
	for i := range all {
		all[i].More = nil
	}
	return all
}

// IsZero reports whether e is the zero Export.
func (e Export) IsZero() bool { return reflect.ValueOf(e).IsZero() }

// Target returns the volume's name on the target: its NQN or IQN.
func (e Export) Target() string {
	if e.NQN != "" {
		return e.NQN
	}
	return e.IQN
}

// String returns the name of the export for logs and errors.
func (e Export) String() string {
	s := string(e.Transport) + " " + e.Target()
	if e.Address != "" {
		s += " at " + e.portal()
	}
	for _, a := range e.More {
		s += ", " + net.JoinHostPort(a.Addr, a.Port)
	}
	return s
}

func (e Export) portal() string { return net.JoinHostPort(e.Address, e.Port) }

// ParseExport reads an export from a volume's context map. It ignores unknown keys, because other
// programs may add entries. The export contains the addresses for a node with the given labels.
// Errors wrap [ErrInvalidExport] and contain the key and its valid values.
func ParseExport(m, node map[string]string) (Export, error) {
	e := Export{Address: m[KeyTargetAddr], Port: m[KeyTargetPort], NQN: m[KeyNQN], IQN: m[KeyIQN]}
	var err error
	if e.Transport, err = parseTransport(m[KeyTargetType]); err != nil {
		return Export{}, err
	}
	if err := e.checkName(); err != nil {
		return Export{}, err
	}
	if e.Transport == Loop {
		e.Address, e.Port = "", ""
		if e.LoopDir, err = parseLoopDir(m[KeyLoopDir]); err != nil {
			return Export{}, err
		}
	} else if err := e.parsePortals(m[KeyTargetAddrs], node); err != nil {
		return Export{}, err
	}
	if s := m[KeyNSUUID]; s != "" {
		id, ok := parseUUID(s)
		if !ok {
			return Export{}, invalid(KeyNSUUID, s, "a UUID such as 00000000-0000-4000-8000-000000000000, not all zero")
		}
		e.NSUUID = id
	} else {
		if e.LegacyUUID, err = legacyUUID(m[KeyModel], e.Target()); err != nil {
			return Export{}, err
		}
	}
	if s := m[KeyLvolSize]; s != "" {
		if e.SizeBytes, err = strconv.ParseInt(s, 10, 64); err != nil || e.SizeBytes <= 0 {
			return Export{}, invalid(KeyLvolSize, s, "the volume's size in bytes, a positive whole number")
		}
	}
	if e.Transport == TCP || e.Transport == RDMA {
		e.Multipath = m[KeyMultipath] == "true"
		if e.Options, err = parseOptions(m); err != nil {
			return Export{}, err
		}
	}
	return e, e.parseAuthentication(m)
}

func parseTransport(s string) (Transport, error) {
	switch strings.ToLower(s) {
	case "tcp", "nvme-tcp":
		return TCP, nil
	case "rdma", "nvme-rdma":
		return RDMA, nil
	case "iscsi":
		return ISCSI, nil
	case "loop":
		return Loop, nil
	}
	return "", invalid(KeyTargetType, s, "tcp, rdma or iscsi")
}

// checkName checks that the export has the kind of name that its transport needs, and that the name
// contains no characters that the kernel or iscsiadm would interpret. The kernel splits its option
// string at commas, and iscsiadm uses names in paths.
func (e *Export) checkName() error {
	switch e.Transport {
	case TCP, RDMA:
		e.IQN = ""
		if !validNQN(e.NQN) {
			return invalid(KeyNQN, e.NQN, wantNQN)
		}
	case ISCSI:
		e.NQN = ""
		if !validIQN(e.IQN) {
			return invalid(KeyIQN, e.IQN, wantIQN)
		}
	case Loop:
		switch {
		case e.NQN == "" && !validIQN(e.IQN):
			return invalid(KeyIQN, e.IQN, wantIQN+", or "+KeyNQN)
		case e.NQN != "" && !validNQN(e.NQN):
			return invalid(KeyNQN, e.NQN, wantNQN)
		case e.NQN != "":
			e.IQN = ""
		}
	}
	return nil
}

const (
	wantNQN = "the subsystem's NQN, nqn.<year>-<month>.<domain>:<name>, at most 223 characters without spaces and commas"
	wantIQN = "the iSCSI target's name, iqn.<year>-<month>.<domain>:<name>, at most 223 letters, digits and . : - _"
)

// The NVMe specification allows UTF-8 in NQNs, but in practice SPDK's NQNs are ASCII.
var (
	nqnPattern = regexp.MustCompile(`^nqn\.[0-9]{4}-[0-9]{2}\.[!-+\--~]+$`)
	iqnPattern = regexp.MustCompile(`^iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9._:-]+$`)
)

func validNQN(s string) bool { return len(s) <= 223 && nqnPattern.MatchString(s) }

func validIQN(s string) bool { return len(s) <= 223 && iqnPattern.MatchString(s) }

var hostNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// parsePortals checks the export's address and port. If list is not empty, parsePortals instead
// uses the listed addresses that match the node's labels.
func (e *Export) parsePortals(list string, node map[string]string) error {
	all := []Address{{Addr: e.Address, Port: e.Port}}
	if list != "" {
		var err error
		if all, err = parseAddresses(list, node); err != nil {
			return err
		}
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return err
		}
	}
	e.Address, e.Port = all[0].Addr, all[0].Port
	if len(all) > 1 {
		e.More = all[1:]
	}
	return nil
}

// zonePattern excludes characters that have a special meaning in the kernel's option string.
var zonePattern = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)

func (a *Address) check() error {
	a.Addr = strings.TrimSuffix(strings.TrimPrefix(a.Addr, "["), "]")
	if ip, err := netip.ParseAddr(a.Addr); err == nil {
		if ip.IsUnspecified() {
			return invalid(KeyTargetAddr, a.Addr, "an address at which nodes reach the target, not the wildcard")
		}
		if !zonePattern.MatchString(ip.Zone()) {
			return invalid(KeyTargetAddr, a.Addr, "an IP address whose zone is the name of a network interface")
		}
	} else if !hostNamePattern.MatchString(a.Addr) {
		return invalid(KeyTargetAddr, a.Addr, "the target's IP address or host name")
	}
	if n, err := strconv.ParseUint(a.Port, 10, 16); err != nil || n == 0 {
		return invalid(KeyTargetPort, a.Port, "a port number, 1 to 65535")
	}
	return nil
}

func parseLoopDir(s string) (string, error) {
	if !filepath.IsAbs(s) {
		return "", invalid(KeyLoopDir, s, "the absolute path of the simulated target's data directory")
	}
	return filepath.Clean(s), nil
}

// parseUUID accepts only the plain form; uuid.Parse also accepts braces and URNs.
func parseUUID(s string) (string, bool) {
	id, err := uuid.Parse(s)
	return id.String(), err == nil && len(s) == 36 && id != uuid.Nil
}

// legacyUUID returns the lvol UUID that SPDK's spdk-csi put into the model number and at the end of
// the NQN or IQN. If both contain a UUID, the two must be equal, as for volumes created by SPDK's
// spdk-csi.
func legacyUUID(model, target string) (string, error) {
	inModel, hasModel := parseUUID(model)
	inTarget, hasTarget := parseUUID(target[max(0, len(target)-36):])
	switch {
	case hasModel && hasTarget && inModel != inTarget:
		return "", invalid(KeyModel, model, "the same lvol UUID as "+target+" ends in, or "+KeyNSUUID+" must be given")
	case hasModel:
		return inModel, nil
	case hasTarget:
		return inTarget, nil
	}
	return "", nil
}

func invalid(key, value, want string) error {
	if value == "" {
		return fmt.Errorf("%w: %q is missing from the volume's context: it must be %s", ErrInvalidExport, key, want)
	}
	return fmt.Errorf("%w: %q is %q: it must be %s", ErrInvalidExport, key, value, want)
}
