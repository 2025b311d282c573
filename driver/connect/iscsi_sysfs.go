package connect

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// session describes an iSCSI session of this node, from /sys/class/iscsi_session.
type session struct {
	name  string // session1
	state string // LOGGED_IN, FAILED, FREE
}

// sessions lists the sessions that this host has with a target. It ignores the sessions of other
// initiator names.
func (i *iscsi) sessions(iqn string) ([]session, error) {
	names, err := i.node.entries("sys/class/iscsi_session")
	if err != nil {
		return nil, fmt.Errorf("list iSCSI sessions: %w", err)
	}
	slices.Sort(names)
	var found []session
	for _, name := range names {
		attribute := func(a string) string { return i.node.attribute("sys/class/iscsi_session", name, a) }
		if attribute("targetname") == iqn && attribute("initiatorname") == i.host.IQN {
			found = append(found, session{name: name, state: attribute("state")})
		}
	}
	return found, nil
}

// lun is the block device of a LUN in a session.
type lun struct {
	session string
	address string // SCSI address, host:channel:target:LUN
	number  string
	name    string // sda
	serial  string // unit serial number; SPDK uses the first part of the bdev's name
}

var (
	targetPattern = regexp.MustCompile(`^target[0-9]+:[0-9]+:[0-9]+$`)
	scsiPattern   = regexp.MustCompile(`^[0-9]+:[0-9]+:[0-9]+:([0-9]+)$`)
)

func (i *iscsi) luns(sessions []session) ([]lun, error) {
	var found []lun
	for _, s := range sessions {
		below := filepath.Join("sys/class/iscsi_session", s.name, "device")
		targets, err := i.node.entries(below)
		if err != nil {
			return nil, fmt.Errorf("list SCSI targets of %s: %w", s.name, err)
		}
		for _, t := range targets {
			if !targetPattern.MatchString(t) {
				continue
			}
			addresses, err := i.node.entries(below, t)
			if err != nil {
				return nil, fmt.Errorf("list LUNs of %s: %w", s.name, err)
			}
			for _, a := range addresses {
				m := scsiPattern.FindStringSubmatch(a)
				if m == nil {
					continue
				}
				names, err := i.node.entries(below, t, a, "block")
				if err != nil {
					return nil, fmt.Errorf("find the block device of LUN %s: %w", a, err)
				}
				for _, name := range names {
					found = append(found, lun{session: s.name, address: a, number: m[1], name: name, serial: i.serial(below, t, a)})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b lun) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// serial reads the unit serial number from SCSI vital product data page 0x80, where it follows a
// header of four bytes.
func (i *iscsi) serial(elem ...string) string {
	page := i.node.attribute(append(elem, "vpd_pg80")...)
	if len(page) <= 4 {
		return ""
	}
	return strings.ToLower(strings.Trim(page[4:], "\x00 \n"))
}

// chooseLUN returns LUN 0. If the serial number of LUN 0 is a volume's UUID (SPDK uses the first 31
// characters), it must match the export's volume.
func chooseLUN(e Export, all []lun) (lun, error) {
	var matches []lun
	for _, l := range all {
		if l.number == "0" {
			matches = append(matches, l)
		}
	}
	switch len(matches) {
	case 0:
		return lun{}, fmt.Errorf("%w: logged in, but the target has no LUN 0: check iscsi_get_target_nodes on the target", ErrNoNamespace)
	case 1:
	default:
		return lun{}, fmt.Errorf("%w: LUN 0 appears as %s and %s: log out of all but one session", ErrAmbiguous, matches[0].name, matches[1].name)
	}
	l := matches[0]
	want := e.NSUUID
	if want == "" {
		want = e.LegacyUUID
	}
	if want != "" && uuidStart.MatchString(l.serial) && !strings.HasPrefix(want, l.serial) {
		return lun{}, fmt.Errorf("%w: LUN 0 of the target (%s) is volume %s…, not %s: check iscsi_get_target_nodes on the target", ErrNoNamespace, l.name, l.serial, want)
	}
	return l, nil
}

var uuidStart = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{7,12}$`)

func (i *iscsi) rescanDevice(d Device) error {
	name := filepath.Base(d.Path)
	if err := i.node.write(i.node.path("sys/block", name, "device/rescan"), "1"); err != nil {
		return fmt.Errorf("rescan %s: %w", name, err)
	}
	return nil
}

// scanHosts makes the kernel look for LUNs again.
func (i *iscsi) scanHosts(e Export) error {
	sessions, err := i.sessions(e.IQN)
	if err != nil {
		return err
	}
	hosts, err := i.node.entries("sys/class/iscsi_host")
	if err != nil {
		return fmt.Errorf("list iSCSI hosts: %w", err)
	}
	for _, h := range hosts {
		for _, s := range sessions {
			if !i.node.exists("sys/class/iscsi_host", h, "device", s.name) {
				continue
			}
			if err := i.node.write(i.node.path("sys/class/scsi_host", h, "scan"), "- - -"); err != nil {
				return fmt.Errorf("scan %s for LUNs: %w", h, err)
			}
		}
	}
	return nil
}
