package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/inventory"
)

// statusFile is the file in the state directory that the node plugin writes the state of its
// volumes to.
const statusFile = "node-status.json"

func nodeStatusCommand() *cobra.Command {
	var stateDir string
	cmd := &cobra.Command{
		Use:   "node-status",
		Short: "Print the state of this node's volumes, as JSON",
		Long: `node-status runs beside the node plugin, in its container. It prints the version, the transports whose
modules the kernel has, and what the last check of the staged volumes found. kubectl spdkgate nodes
shows it for all nodes. It changes nothing, and does not touch a volume.

Exit codes: 0 done; 1 the state of the volumes is unknown, and the JSON says why.`,
		Example: `  kubectl -n spdkcsi exec POD -c spdkcsi-node -- spdk-csi node-status`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status := inventory.NodeStatus{Version: versionText(), Transports: connect.LoadedTransports(connect.Options{})}
			staged, err := readStatus(filepath.Join(stateDir, statusFile), time.Now())
			if err != nil {
				status.Problem = err.Error()
			} else {
				status.Staged = &staged
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return errors.Join(e.Encode(status), err)
		},
	}
	cmd.Flags().StringVar(&stateDir, "node-state-dir", "/csi", "the node plugin's --node-state-dir, or the directory of its endpoint")
	return cmd
}

// readStatus reads the monitor's report. It fails if the file is older than the maximum duration of
// a check.
func readStatus(path string, now time.Time) (s inventory.Staged, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("the node plugin has not checked its volumes since it started, or does not check them (--node-health-interval=0): repeat the command in a minute (%w)", err)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	limit := 2*time.Duration(s.IntervalSeconds*float64(time.Second)) + time.Minute
	if age := now.Sub(s.Checked); age > limit || age < -time.Minute {
		return s, fmt.Errorf("the node plugin last checked its volumes at %s, which is not within the last %s: see its log", s.Checked.Format(time.RFC3339), limit)
	}
	return s, nil
}
