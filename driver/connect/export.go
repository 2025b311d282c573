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

// Keys of the context map. The first seven are spdk-csi's, so that its volumes keep working.
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
	// KeyMultipath says that the export reports ANA, and admits this node as [Host.Multipath] too.
	KeyMultipath = "multipathHost"
)

// Transport is how an export is reached.
type Transport string

// The transports; see [ParseExport] for their spellings in a context map.
const (
	TCP   Transport = "tcp"
	RDMA  Transport = "rdma"
	ISCSI Transport = "iscsi"
	Loop  Transport = "loop"
)

// Export is one volume as its target exports it. It holds no secrets, and survives a round trip
// through JSON, for callers that must remember what they connected.
type Export struct {
	Transport Transport `json:"transport"`
	Address   string    `json:"address,omitzero"` // IP address or host name
	Port      string    `json:"port,omitzero"`
	NQN       string    `json:"nqn,omitzero"`
	IQN       string    `json:"iqn,omitzero"`
	// NSUUID is the namespace's UUID, lower case. It is empty for volumes that were made by
	// spdk-csi; LegacyUUID then helps to find the namespace.
	NSUUID string `json:"nsUUID,omitzero"`
	// LegacyUUID is the lvol's UUID as spdk-csi wrote it into model and NQN.
	LegacyUUID string `json:"legacyUUID,omitzero"`
	// SizeBytes is the size at creation, 0 when unknown. Volumes grow: never insist on it.
	SizeBytes int64 `json:"sizeBytes,omitzero"`
	// Multipath: see KeyMultipath.
	Multipath bool   `json:"multipath,omitzero"`
	LoopDir   string `json:"loopDir,omitzero"`
}

// Target is the name under which the target exports the volume: its NQN or IQN.
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

// ParseExport reads an export from a volume's context map. Keys it does not know are left alone:
// the map carries other people's entries too. Errors are of kind [ErrInvalidExport], and name the
// key and what belongs there.
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

// checkName makes sure that the export is named by what its transport needs, and by characters
// that mean nothing else further down: the kernel splits its option string at commas, iscsiadm
// makes folders of names.
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

// NQNs are UTF-8 by the NVMe specification; what SPDK and its users make of it is ASCII.
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
			return invalid(KeyTargetAddr, e.Address, "an address under which nodes reach the target, not the wildcard")
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

// parseUUID accepts the plain form only: the google/uuid package also takes braces and URNs.
func parseUUID(s string) (string, bool) {
	id, err := uuid.Parse(s)
	return id.String(), err == nil && len(s) == 36 && id != uuid.Nil
}

// legacyUUID finds the lvol UUID that spdk-csi put into the model number and at the end of NQN or
// IQN. Where both have one they always agreed.
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
		return fmt.Errorf("%w: %q is missing from the volume's context: it must hold %s", ErrInvalidExport, key, want)
	}
	return fmt.Errorf("%w: %q is %q: it must hold %s", ErrInvalidExport, key, value, want)
}
