package connect

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// iscsiadm accepts a record's values only as arguments, which every user on the node can read. To
// keep the passwords out of arguments, this package itself writes user names and passwords to the
// file of the record that iscsiadm has created. The record remains as long as the session exists,
// so that iscsid can log in again after a restart.

// recordFolders lists the directories where open-iscsi may keep its records. Debian and versions
// before 2.1.9 use the first directory; later versions use the second.
var recordFolders = []string{"etc/iscsi", "var/lib/iscsi"}

// hostRoot returns the path of the node's root directory in the container, or the plugin's own root
// directory outside a container. The node's iscsiadm uses the files below that directory.
func (i *iscsi) hostRoot() string {
	const inContainer = "host/proc/1/root"
	if i.node.exists(inContainer) {
		return inContainer
	}
	return ""
}

// chapSettings returns the lines that this package writes to a record.
func chapSettings(k *hostauth.Keys) []string {
	lines := []string{
		"node.session.auth.authmethod = CHAP",
		"node.session.auth.username = " + k.HostUser,
		"node.session.auth.password = " + k.Host.Reveal(),
	}
	if k.Both() {
		lines = append(lines, "node.session.auth.username_in = "+k.TargetUser, "node.session.auth.password_in = "+k.Target.Reveal())
	}
	return lines
}

// writeKeys writes an export's keys to its record, which iscsiadm must have created.
func (i *iscsi) writeKeys(e Export) error {
	if e.Authentication != hostauth.CHAP {
		return nil
	}
	if err := e.CheckKeys(); err != nil {
		return err
	}
	found := false
	for _, folder := range recordFolders {
		folder = path.Join(i.hostRoot(), folder)
		records, err := i.records(path.Join(folder, "nodes", e.IQN), e)
		if err != nil {
			return fmt.Errorf("list the records of iscsid: %w", err)
		}
		for _, record := range records {
			found = true
			if err := i.changeRecord(folder, record, chapSettings(e.keys)); err != nil {
				return fmt.Errorf("write the user and password into iscsid's record: %w", err)
			}
		}
	}
	if !found {
		return fmt.Errorf("%w: iscsiadm created a record for %s, but the record is in neither /etc/iscsi nor /var/lib/iscsi: give the driver access to the directory that the node's iscsiadm uses (in the driver's container, below /host/proc/1/root)", ErrUnsupported, e.IQN)
	}
	return nil
}

// records returns the paths of the records for an export's address: ADDRESS,PORT or
// ADDRESS,PORT,GROUP/INTERFACE.
func (i *iscsi) records(folder string, e Export) (found []string, err error) {
	names, err := i.node.entries(folder)
	if err != nil {
		return nil, err
	}
	portal := e.Address + "," + e.Port
	for _, name := range names {
		if name != portal && !strings.HasPrefix(name, portal+",") {
			continue
		}
		record := path.Join(folder, name)
		if info, err := os.Stat(i.node.path(record)); err != nil {
			return nil, err
		} else if info.IsDir() {
			record = path.Join(record, iface)
			if !i.node.exists(record) {
				continue
			}
		}
		found = append(found, record)
	}
	return found, nil
}

const endOfRecord = "# END RECORD"

// changeRecord replaces a record's authentication settings. The record's file is replaced
// atomically, and only its owner can read it.
func (i *iscsi) changeRecord(folder, record string, settings []string) error {
	text, err := os.ReadFile(i.node.path(record))
	if err != nil {
		return err
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimRight(string(text), "\n"), "\n"), func(line string) bool {
		line = strings.TrimSpace(line)
		return strings.HasPrefix(line, "node.session.auth.") && !strings.HasPrefix(line, "node.session.auth.chap_algs") || line == endOfRecord
	})
	lines = slices.Concat(lines, settings, []string{endOfRecord, ""})
	// Create the temporary file elsewhere, because iscsiadm would read it as a record.
	f, err := os.CreateTemp(i.node.path(folder), ".spdkgate-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n"))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), i.node.path(record))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// explainCHAP explains why iscsid could not log in to a target that requires authentication. If the
// target refuses the login, iscsid reports the refusal. If iscsid itself refuses the target, it
// reports only that the login failed permanently.
func explainCHAP(e Export, code int, err error) error {
	who, compare := "the target refused this node's user or password", "chap-user and chap-password"
	if code != exitAuthFailed && e.keys.Both() {
		who, compare = "this node ended the login, which happens if the target does not have the right user and password", "chap-target-user and chap-target-password"
	}
	return fmt.Errorf("%w: %s: %s: compare %s in the node's Secret with those in the Secret that the controller used to publish the volume; see also iscsid's log on the node (%w)", ErrAuthentication, e.IQN, who, compare, err)
}
