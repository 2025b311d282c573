package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/persist"
)

// examined lists the disks that SPDK examines for lvstores because of a saved configuration.
type examined struct {
	every bool // every new bdev, whatever its name
	disks []string
}

func examinedBy(folder *persist.Folder, name string) (e examined, err error) {
	text, err := folder.Text(name)
	if err != nil {
		return examined{}, err
	}
	var c struct {
		Subsystems []struct {
			Calls []struct {
				Method string          `json:"method"`
				Params json.RawMessage `json:"params"`
			} `json:"config"`
		} `json:"subsystems"`
	}
	invalid := fmt.Errorf("read which disks %s makes SPDK examine: the file is not a saved configuration", name)
	if json.Unmarshal(text.Bytes, &c) != nil {
		return examined{}, invalid
	}
	e.every = true // SPDK's default
	for _, s := range c.Subsystems {
		for _, call := range s.Calls {
			if call.Method != "bdev_set_options" && call.Method != "bdev_examine" {
				continue
			}
			var params struct {
				Name        string `json:"name"`
				AutoExamine *bool  `json:"bdev_auto_examine"`
			}
			if json.Unmarshal(call.Params, &params) != nil {
				return examined{}, invalid
			}
			switch {
			case call.Method == "bdev_examine":
				e.disks = append(e.disks, params.Name)
			case params.AutoExamine != nil:
				e.every = *params.AutoExamine
			}
		}
	}
	return e, nil
}

// refuseExamination fails if SPDK would examine more disks with the named file than with
// current.json. The lvstores on these disks may have been deleted since the file was saved; SPDK
// would load lvstores that hosts have written there since. An unreadable current.json is ignored,
// because spdk_tgt cannot start with it.
func refuseExamination(folder *persist.Folder, name string) error {
	chosen, err := examinedBy(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Folder.Use reports which files exist
	}
	if err != nil {
		return err
	}
	current, err := examinedBy(folder, persist.Current)
	if err != nil || current.every {
		return nil
	}
	what := "each new bdev"
	if !chosen.every {
		chosen.disks = slices.DeleteFunc(chosen.disks, func(disk string) bool { return slices.Contains(current.disks, disk) })
		if len(chosen.disks) == 0 {
			return nil
		}
		what = strings.Join(chosen.disks, ", ")
	}
	return fmt.Errorf("%s makes SPDK examine %s, unlike %s: SPDK would load an lvstore that a host has written there since that file was saved. "+
		"If no host could write there, repeat the command with --examine", name, what, persist.Current)
}
