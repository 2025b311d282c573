package connect

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Keys of the context map. The first seven are the same as in spdk-csi, so its volumes keep working.
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
	// KeyMultipath tells that the export reports ANA, and also admits this node as [Host.Multipath].
	KeyMultipath = "multipathHost"
)

// Transport is the protocol over which a node reaches an export.
type Transport string

// The transports; see [ParseExport] for their spellings in a context map.
const (
	TCP   Transport = "tcp"
	RDMA  Transport = "rdma"
	ISCSI Transport = "iscsi"
	Loop  Transport = "loop"
)

// An Export describes how a target exports a volume. It contains no secrets. Callers can store it
// as JSON to record what they connected.
type Export struct {
	Transport Transport `json:"transport"`
	Address   string    `json:"address,omitzero"` // IP address or host name
	Port      string    `json:"port,omitzero"`
	NQN       string    `json:"nqn,omitzero"`
	IQN       string    `json:"iqn,omitzero"`
	// NSUUID is the namespace's UUID in lower case. It is empty for volumes of spdk-csi;
	// LegacyUUID then helps to find the namespace.
	NSUUID string `json:"nsUUID,omitzero"`
	// LegacyUUID is the lvol's UUID, which spdk-csi wrote into model and NQN.
	LegacyUUID string `json:"legacyUUID,omitzero"`
	// SizeBytes is the size at creation, 0 if unknown. Volumes grow, so devices may be larger.
	SizeBytes int64 `json:"sizeBytes,omitzero"`
	// Multipath: see KeyMultipath.
	Multipath bool   `json:"multipath,omitzero"`
	LoopDir   string `json:"loopDir,omitzero"`
}

// Target returns the name under which the target exports the volume: its NQN or IQN.
func (e Export) Target() string {
	if e.NQN != "" {
		return e.NQN
	}
	return e.IQN
}

// String names the export in logs and errors.
func (e Export) String() string {
	s := string(e.Transport) + " " + e.Target()
	if e.Address != "" {
		s += " at " + e.portal()
	}
	return s
}

func (e Export) portal() string { return net.JoinHostPort(e.Address, e.Port) }

// ParseExport reads an export from a volume's context map. It ignores other keys, because the map
// also has entries of other programs. Errors are of kind [ErrInvalidExport], and name the key and
// its valid values.
func ParseExport(m map[string]string) (Export, error) {
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
	} else if err := e.checkPortal(); err != nil {
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
	e.Multipath = m[KeyMultipath] == "true" && (e.Transport == TCP || e.Transport == RDMA)
	return e, nil
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

// checkName checks that the export has the name that its transport needs, without characters that
// have a special meaning later: the kernel splits its option string at commas, and iscsiadm makes
// folders of names.
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

// NQNs are UTF-8 by the NVMe specification; SPDK and its users use ASCII.
var (
	nqnPattern = regexp.MustCompile(`^nqn\.[0-9]{4}-[0-9]{2}\.[!-+\--~]+$`)
	iqnPattern = regexp.MustCompile(`^iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9._:-]+$`)
)

func validNQN(s string) bool { return len(s) <= 223 && nqnPattern.MatchString(s) }

func validIQN(s string) bool { return len(s) <= 223 && iqnPattern.MatchString(s) }

var hostNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

func (e *Export) checkPortal() error {
	e.Address = strings.TrimSuffix(strings.TrimPrefix(e.Address, "["), "]")
	if ip, err := netip.ParseAddr(e.Address); err == nil {
		if ip.IsUnspecified() {
			return invalid(KeyTargetAddr, e.Address, "an address at which nodes reach the target, not the wildcard")
		}
	} else if !hostNamePattern.MatchString(e.Address) {
		return invalid(KeyTargetAddr, e.Address, "the target's IP address or host name")
	}
	if n, err := strconv.ParseUint(e.Port, 10, 16); err != nil || n == 0 {
		return invalid(KeyTargetPort, e.Port, "a port number, 1 to 65535")
	}
	return nil
}

func parseLoopDir(s string) (string, error) {
	if !filepath.IsAbs(s) {
		return "", invalid(KeyLoopDir, s, "the absolute path of the simulated target's data folder")
	}
	return filepath.Clean(s), nil
}

// parseUUID accepts only the plain form, while uuid.Parse also accepts braces and URNs.
func parseUUID(s string) (string, bool) {
	id, err := uuid.Parse(s)
	return id.String(), err == nil && len(s) == 36 && id != uuid.Nil
}

// legacyUUID returns the lvol UUID that spdk-csi put into the model number and at the end of NQN or
// IQN. If both have one, they must be the same, as they are in spdk-csi.
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
