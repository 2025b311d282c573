package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/luks"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A stageRecord records on disk how a staged volume is connected, because NodeUnstageVolume
// receives only a path, and may run in a different process than NodeStageVolume.
//
// The record is a file in the staging directory, next to the directory where the volume is mounted,
// so that no mount hides it. It is written before anything is connected, and removed after
// everything is disconnected. Without a record, there is nothing to disconnect.
type stageRecord struct {
	// Version is the format of the record: see recordVersion. A missing version means 1.
	Version  int            `json:"version,omitzero"`
	VolumeID string         `json:"volumeID"`
	Export   connect.Export `json:"export"`
	// Replicated describes a replicated volume; it is nil for other volumes. For a replicated
	// volume, Export is zero.
	Replicated *heal.Volume `json:"replicated,omitzero"`
	Block      bool         `json:"block,omitzero"`
	// Encryption describes how the volume is encrypted. NodeUnstageVolume needs Encryption to close
	// the mapping.
	Encryption encryption `json:"encryption,omitzero"`
	// Targets contains the paths where the volume was published. It may have been unpublished from
	// some of them since then, so callers must check the mounts.
	Targets []string `json:"targets,omitzero"`

	passphrases *luks.Keys // passed to the current call; nil for none
}

// recordVersion is the newest record format that this program can read. A record has the lowest
// version that describes it completely: 3 for a replicated volume, because NodeUnstageVolume must
// stop its mirror; 2 for an encrypted volume, because NodeUnstageVolume must close its mapping; and
// 1 for all other volumes. Increase the version for new fields that earlier programs must not
// ignore. Fields that earlier programs can ignore need no new version.
const recordVersion = 3

func (r stageRecord) version() int {
	if r.replicated() {
		return 3
	}
	if r.encrypted() {
		return 2
	}
	return 1
}

const (
	recordName = "spdkcsi-stage.json"
	// legacyRecordName is the name of the record that SPDK's spdk-csi writes, which contains the
	// volume context. This driver can unstage volumes that SPDK's spdk-csi has staged.
	legacyRecordName = "volume-context.json"
)

// stagePath returns the path where a file system is mounted: a directory in the staging directory,
// as in SPDK's spdk-csi.
func stagePath(staging, volumeID string) string { return filepath.Join(staging, volumeID) }

// A pathField contains a path in a request and the name of its field.
type pathField struct{ field, path string }

// checkRequest fails if a request lacks a volume id or one of the paths, or if checkPaths fails.
func checkRequest(volumeID string, fields ...pathField) error {
	if volumeID == "" {
		return fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	paths := make([]string, len(fields))
	for i, p := range fields {
		if p.path == "" {
			return fmt.Errorf("%w: %s is missing", request.ErrInvalid, p.field)
		}
		paths[i] = p.path
	}
	return checkPaths(volumeID, paths...)
}

// checkPaths rejects paths that are not absolute, and volume ids that cannot be file names.
func checkPaths(volumeID string, paths ...string) error {
	if volumeID == "." || volumeID == ".." || filepath.Base(volumeID) != volumeID {
		return fmt.Errorf("%w: volume_id %q cannot be part of a path", request.ErrNoSuchID, volumeID)
	}
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("%w: path %q is not absolute", request.ErrInvalid, p)
		}
	}
	return nil
}

// readRecord returns the record in a staging directory, and false if there is none.
func readRecord(staging, volumeID string) (stageRecord, bool, error) {
	text, err := os.ReadFile(filepath.Join(staging, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return readLegacyRecord(staging, volumeID)
	}
	if err != nil {
		return stageRecord{}, false, fmt.Errorf("read the stage record: %w", err)
	}
	path := filepath.Join(staging, recordName)
	// Read the version first, because the rest of a newer record may have any format.
	var form struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &form); err == nil && form.Version > recordVersion {
		return stageRecord{}, false, fmt.Errorf("%w: %s has version %d, and this release of spdk-csi supports versions up to %d. Nothing was changed. Run the release that staged the volume, or a later one, on this node",
			errNewerRecord, path, form.Version, recordVersion)
	}
	var r stageRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return stageRecord{}, false, fmt.Errorf("stage record %s: %w: disconnect the volume by hand and remove the file", path, err)
	}
	if r.VolumeID != volumeID {
		return stageRecord{}, false, fmt.Errorf("%w: %s belongs to volume %q: unstage that volume first", request.ErrConflict, path, r.VolumeID)
	}
	return r, true, nil
}

// errNewerRecord means that a later release wrote the record.
var errNewerRecord = errors.New("stage record of a later release")

func readLegacyRecord(staging, volumeID string) (stageRecord, bool, error) {
	path := filepath.Join(staging, legacyRecordName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return stageRecord{}, false, nil
	}
	if err != nil {
		return stageRecord{}, false, fmt.Errorf("read the stage record of SPDK's spdk-csi: %w", err)
	}
	var m map[string]string
	if err := json.Unmarshal(text, &m); err != nil {
		return stageRecord{}, false, fmt.Errorf("the stage record of SPDK's spdk-csi, %s: %w: disconnect the volume by hand and remove the file", path, err)
	}
	export, err := connect.ParseExport(m, nil)
	return stageRecord{VolumeID: volumeID, Export: export}, err == nil, err
}

// write replaces the record atomically and durably. After a crash, either the complete old record
// or the complete new record exists.
func (r stageRecord) write(staging string) error {
	r.Version = r.version()
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the stage record: %w", err)
	}
	path := filepath.Join(staging, recordName)
	if err := writeDurably(path+".new", text); err != nil {
		_ = os.Remove(path + ".new") // kubelet removes the directory only if it is empty
		return fmt.Errorf("write the stage record: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the stage record: %w", err)
	}
	return syncDir(staging)
}

func writeDurably(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeRecord removes a staging directory's records.
func removeRecord(staging string) error {
	for _, name := range []string{recordName + ".new", legacyRecordName, recordName} {
		if err := os.Remove(filepath.Join(staging, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the stage record: %w", err)
		}
	}
	return nil
}

// addTarget records a path before the volume is published there, and drops the paths that are no
// longer mounted.
func (r stageRecord) addTarget(staging, target string, isMounted func(string) bool) error {
	r.Targets = slices.DeleteFunc(r.Targets, func(t string) bool { return t != target && !isMounted(t) })
	if slices.Contains(r.Targets, target) {
		return nil
	}
	r.Targets = append(r.Targets, target)
	return r.write(staging)
}
