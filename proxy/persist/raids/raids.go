// Package raids lists the target's RAIDs with a superblock, and finds those that a restart would
// not restore.
//
// The package must not depend on how the configuration is read or saved: package persist does both.
package raids

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Raid is a RAID with a superblock. SPDK does not save it in its configuration, because it finds
// the superblock when it examines the disks.
type Raid struct {
	Name  string
	Disks []string
}

// Ask makes a call to the target.
type Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)

// List lists the RAIDs with a superblock, without their removed disks.
func List(ctx context.Context, ask Ask) (list []Raid, err error) {
	var raids []struct {
		Name       string `json:"name"`
		Superblock bool   `json:"superblock"`
		Disks      []struct {
			Name string `json:"name"`
		} `json:"base_bdevs_list"`
	}
	text, err := ask(ctx, "bdev_raid_get_bdevs", map[string]any{"category": "all"})
	if errors.Is(err, spdkrpc.MethodNotFound) { // the target was built without RAID support
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bdev_raid_get_bdevs: %w", err)
	}
	if json.Unmarshal(text, &raids) != nil { // the decoder's error may quote the response
		return nil, errors.New("bdev_raid_get_bdevs: the response is not a list of RAIDs")
	}
	for _, r := range raids {
		if !r.Superblock {
			continue
		}
		raid := Raid{Name: r.Name}
		for _, disk := range r.Disks {
			if disk.Name != "" {
				raid.Disks = append(raid.Disks, disk.Name)
			}
		}
		list = append(list, raid)
	}
	return list, nil
}

// A Cause is the reason why SPDK does not restore a RAID.
type Cause string

const (
	// NewUUID means that the disk gets a new UUID at each start, while the RAID's superblock lists
	// the UUIDs of its disks.
	NewUUID Cause = "uuid"
	// NoContent means that the disk loses its content when the target ends.
	NoContent Cause = "content"
	// Removed means that the RAID has no superblock and has lost a disk. SPDK saves a placeholder
	// name for the disk, and waits for a bdev with this name after a restart.
	Removed Cause = "removed"
)

// removedDisk is the prefix of the placeholder names that SPDK saves for disks that a RAID has
// lost.
const removedDisk = "removed_base_bdev_"

// A Lost names a RAID that a restart would not restore, and one of the disks that cause this.
type Lost struct {
	Raid, Disk string
	Cause      Cause
}

// Reason returns a sentence that explains the cause and the remedy.
func (l Lost) Reason() string {
	switch l.Cause {
	case NewUUID:
		return fmt.Sprintf("%s gets another UUID at each start, so SPDK does not recognize it as a disk of the RAID: upgrade SPDK to v24.09 or later, or create the RAID without a superblock", l.Disk)
	case NoContent:
		return fmt.Sprintf("%s loses its content, and with it the superblock, when the target ends: use other disks", l.Disk)
	default:
		return "the RAID has lost a disk, and SPDK would wait for it: add another disk with bdev_raid_add_base_bdev, or create the RAID with a superblock"
	}
}

// causes maps each method that creates disks to the reason why a RAID on such disks is lost.
// NewUUID applies only if the saved call contains no uuid: SPDK saves the UUIDs of io_uring bdevs
// since v24.05, and those of AIO bdevs since v24.09.
var causes = map[string]Cause{
	"bdev_aio_create":    NewUUID,
	"bdev_uring_create":  NewUUID,
	"bdev_malloc_create": NoContent,
	"bdev_null_create":   NoContent,
}

// fewest is the minimum number of disks with which SPDK can create a RAID.
var fewest = map[string]int{"raid1": 2, "raid5f": 3}

// Padded returns a call of bdev_raid_create that SPDK can load. If the list of disks is too short,
// Padded adds placeholder names, for which SPDK then waits, as SPDK itself does since v24.05.
// Padded returns other calls unchanged.
func Padded(call json.RawMessage) json.RawMessage {
	var c struct {
		Method string         `json:"method"`
		Params map[string]any `json:"params"`
	}
	if json.Unmarshal(call, &c) != nil {
		return call
	}
	level, _ := c.Params["raid_level"].(string)
	disks, _ := c.Params["base_bdevs"].([]any)
	if len(disks) >= fewest[level] {
		return call
	}
	for i := len(disks); i < fewest[level]; i++ {
		disks = append(disks, fmt.Sprint(removedDisk, i))
	}
	c.Params["base_bdevs"] = disks
	text, err := json.Marshal(c)
	if err != nil {
		return call
	}
	return text
}

// Unrestorable lists the RAIDs that a restart would not restore from the calls saved for subsystem
// bdev. superblock lists the RAIDs with a superblock, for which there are no calls. Unrestorable
// considers only the disks themselves, not the bdevs below them.
func Unrestorable(superblock []Raid, calls []json.RawMessage) (lost []Lost) {
	disks := map[string]Cause{}
	for _, call := range calls {
		var c struct {
			Method string `json:"method"`
			Params struct {
				Name  string   `json:"name"`
				UUID  string   `json:"uuid"`
				Disks []string `json:"base_bdevs"`
			} `json:"params"`
		}
		// Other methods may have parameters with these names but with other types.
		if json.Unmarshal(call, &c) != nil {
			continue
		}
		if c.Method == "bdev_raid_create" {
			if i := slices.IndexFunc(c.Params.Disks, func(name string) bool { return strings.HasPrefix(name, removedDisk) }); i >= 0 {
				lost = append(lost, Lost{c.Params.Name, c.Params.Disks[i], Removed})
			}
			continue
		}
		if cause := causes[c.Method]; cause == NoContent || cause == NewUUID && c.Params.UUID == "" {
			disks[c.Params.Name] = cause
		}
	}
	for _, r := range superblock {
		for _, disk := range r.Disks {
			if cause := disks[disk]; cause != "" {
				lost = append(lost, Lost{r.Name, disk, cause})
				break
			}
		}
	}
	return lost
}
