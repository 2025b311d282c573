package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/move"
	"github.com/spdkgate/spdkgate/driver/request"
)

type moveFlags struct {
	pv, volume     string
	parameters     map[string]string
	prepare        bool
	keep           bool
	deleteOriginal bool
	copied         string
	verifyAll      bool
	secretDir      string
	authentication string
	driverName     string
	topology       string
	allowLoop      bool
}

func moveCommand() *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{
		Use:   "move --pv FILE | --volume ID [--parameter KEY=VALUE ...]",
		Short: "Copy a volume to another lvstore or target",
		Long: `move copies a volume that no node uses to a new volume in another lvstore or on another target,
and verifies the copy. It reads config.json and secret.json as the controller does, runs as root on
a machine that reaches both targets, as a node does, and attaches both volumes to that machine.
With --pv, it prints the PersistentVolume of the copy.

--parameter has the parameters of a StorageClass, which decide where and how the copy is made, such
as target=storage-2. move may be interrupted at any point, and repeated with the same parameters:
it writes only what differs. The copy is not usable before it is complete. The original is only
read.

move reads only the clusters that are allocated in the volume or in the snapshots below it. If
spdk-proxy cannot list them, move reads the whole volume, and prints why. Before v24.05, SPDK does
not count clusters, so move verifies the copy by reading both volumes completely; --verify-all does
so on every release.

--prepare copies a snapshot of the volume while pods use it. A later move with the same parameters
then only copies and verifies what has changed since, so the pods are stopped for a shorter time.

After move, no node can attach the original, so that nothing is written to it that the copy does
not have. When the copy is in use, delete the original:
  --delete-original --copy ID
To use the original again instead, and to delete the snapshot that --prepare has taken:
  --keep-original

Exit codes: 0 done; 1 error.`,
		Example: `  kubectl get pv pvc-8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d -o json >old.json
  spdk-csi move --pv old.json --parameter target=storage-2 >new.json
  spdk-csi move --pv old.json --delete-original --copy storage-2:5d1fa6ea-6cd5-4a51-8a0b-3f1b47a5d9f0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.pv, "pv", "", "file with the volume's PersistentVolume as JSON, or - for standard input")
	fs.StringVar(&f.volume, "volume", "", "id of the volume, TARGET:UUID, instead of --pv")
	fs.StringToStringVar(&f.parameters, "parameter", nil, "StorageClass parameter of the copy; may be repeated")
	fs.BoolVar(&f.prepare, "prepare", false, "copy a snapshot of the volume while pods use it, to shorten the move")
	fs.BoolVar(&f.verifyAll, "verify-all", false, "verify the copy by reading both volumes completely, even clusters that are not allocated")
	fs.BoolVar(&f.deleteOriginal, "delete-original", false, "delete the original of a complete copy (--copy)")
	fs.StringVar(&f.copied, "copy", "", "with --delete-original: id of the copy")
	fs.BoolVar(&f.keep, "keep-original", false, "let nodes attach the original again")
	fs.StringVar(&f.secretDir, "secret-dir", "", "directory in which the Secret with the nodes' authentication keys is mounted")
	fs.StringVar(&f.authentication, "authentication", "", "how nodes authenticate for the volume, if there is no --pv, or for --copy: dhchap or chap")
	fs.StringVar(&f.topology, "topology", "", "labels of this machine, as in the node plugin's --topology")
	fs.StringVar(&f.driverName, "drivername", driver.DefaultName, "name of the driver in the PersistentVolume")
	fs.BoolVar(&f.allowLoop, "node-allow-loop", false, "attach volumes of simulated targets as loop devices: for tests and the demo, never for real data")
	cmd.MarkFlagsOneRequired("pv", "volume")
	cmd.MarkFlagsMutuallyExclusive("pv", "volume")
	cmd.MarkFlagsMutuallyExclusive("delete-original", "keep-original", "parameter")
	cmd.MarkFlagsMutuallyExclusive("delete-original", "keep-original", "verify-all")
	cmd.MarkFlagsMutuallyExclusive("delete-original", "keep-original", "prepare")
	cmd.MarkFlagsRequiredTogether("delete-original", "copy")
	return cmd
}

func (f moveFlags) run(ctx context.Context, in io.Reader, out, notes io.Writer) error {
	pv, id, err := f.subject(in)
	if err != nil {
		return err
	}
	if _, err := hostauth.ParseMethod(f.authentication); err != nil {
		return fmt.Errorf("--authentication: %w", err)
	}
	given := map[string]string{hostauth.KeyMethod: f.authentication}
	m, closeMover, err := f.mover(notes)
	if err != nil {
		return err
	}
	defer closeMover()
	switch {
	case f.keep:
		if err := m.Keep(ctx, id); err != nil {
			return err
		}
		fmt.Fprintf(out, "nodes can attach %s again\n", id)
		return nil
	case f.deleteOriginal:
		copied, err := request.ParseVolumeID(f.copied)
		if err != nil {
			return fmt.Errorf("--copy: %w", err)
		}
		if err := m.DeleteOriginal(ctx, id, copied, given); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is deleted\n", id)
		return nil
	}
	volumeContext := given
	if f.pv != "" {
		volumeContext, m.Filesystem = pv.Context, pv.Filesystem
	}
	began, run, sum := time.Now(), m.Copy, ""
	if f.prepare {
		run = m.Prepare
	}
	r, err := run(ctx, id, volumeContext, f.parameters)
	if err != nil {
		return err
	}
	if r.SHA256 != "" {
		sum = ", sha256 " + r.SHA256
	}
	fmt.Fprintf(notes, "copied and verified in %s: %s, %s read, %s written%s\n", time.Since(began).Round(time.Second/10), size(r.SizeBytes), size(r.ReadBytes), size(r.WrittenBytes), sum)
	if f.prepare {
		fmt.Fprintln(out, "prepared: stop the pods, and repeat the command without --prepare")
		return nil
	}
	if f.pv == "" {
		fmt.Fprintln(out, r.Volume.GetVolumeId())
		return nil
	}
	text, err := pv.For(r)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n", text)
	return nil
}

// subject returns the id of the volume that the flags name, and its PersistentVolume if --pv is
// set.
func (f moveFlags) subject(in io.Reader) (pv move.PV, id request.VolumeID, err error) {
	if f.pv != "" {
		text, err := readList(f.pv, in)
		if err == nil {
			pv, err = move.ParsePV(text, f.driverName)
		}
		if err != nil {
			return pv, id, fmt.Errorf("--pv: %w", err)
		}
		return pv, pv.Volume, nil
	}
	if id, err = request.ParseVolumeID(f.volume); err == nil && id.Target == "" {
		err = errors.New("the id must name the target, as in TARGET:UUID")
	}
	if err != nil {
		return pv, id, fmt.Errorf("--volume: %w", err)
	}
	return pv, id, nil
}

func (f moveFlags) mover(notes io.Writer) (m move.Mover, closeMover func(), err error) {
	topology, err := request.ParseTopology(f.topology)
	if err != nil {
		return move.Mover{}, nil, fmt.Errorf("--topology: %w", err)
	}
	secrets, err := f.secrets()
	if err != nil {
		return move.Mover{}, nil, fmt.Errorf("--secret-dir: %w", err)
	}
	log := slog.New(slog.NewTextHandler(notes, &slog.HandlerOptions{Level: slog.LevelWarn}))
	connector := func(node string) (connect.Connector, error) {
		return connect.New(connect.HostOf(node), connect.Options{AllowLoop: f.allowLoop, Log: log})
	}
	cfg, err := config.Load()
	if err != nil {
		return move.Mover{}, nil, err
	}
	credentials, err := config.CredentialsFile()
	if err != nil {
		return move.Mover{}, nil, err
	}
	c, err := controller.New(cfg, credentials, slog.New(slog.NewTextHandler(notes, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return move.Mover{}, nil, err
	}
	return move.Mover{Controller: c, Connector: connector, Topology: topology, Secrets: secrets, VerifyAll: f.verifyAll, Log: log, Progress: progress(notes, time.Now)}, c.Close, nil
}

// secrets reads the keys that nodes use to authenticate.
func (f moveFlags) secrets() (map[string]string, error) {
	keys := map[string]string{}
	if f.secretDir == "" {
		return keys, nil
	}
	for _, name := range hostauth.SecretKeys() {
		text, err := os.ReadFile(filepath.Join(f.secretDir, name))
		if err == nil {
			keys[name] = string(text)
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has none of the files %s", f.secretDir, strings.Join(hostauth.SecretKeys(), ", "))
	}
	return keys, nil
}

// progress returns a function that prints progress at most once every five seconds, and when a
// phase ends. clock returns the current time.
func progress(notes io.Writer, clock func() time.Time) func(move.Progress) {
	var last, began time.Time
	phase := ""
	return func(p move.Progress) {
		now := clock()
		if p.Phase != phase {
			phase, began = p.Phase, now
		}
		if p.Done < p.Total && now.Sub(last) < 5*time.Second {
			return
		}
		last = now
		line := fmt.Sprintf("%s: %s of %s", p.Phase, size(p.Done), size(p.Total))
		if taken := now.Sub(began); p.Done > 0 && p.Done < p.Total && taken > 0 {
			line += fmt.Sprintf(", about %s left", time.Duration(float64(taken)*float64(p.Total-p.Done)/float64(p.Done)).Round(time.Second))
		}
		fmt.Fprintln(notes, line)
	}
}

func size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
