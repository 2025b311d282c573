package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// These are the exit codes of doctor.
const (
	exitFindings = 1
	exitError    = 2
)

// An exitCode is an error that sets the process's exit code. If err is nil, nothing is printed.
type exitCode struct {
	code int
	err  error
}

func (e exitCode) Error() string {
	if e.err == nil {
		return "problems were found"
	}
	return e.err.Error()
}

func (e exitCode) Unwrap() error { return e.err }

// asError gives err the exit code for errors, unless err already has an exit code.
func asError(err error) error {
	if code := (exitCode{}); err == nil || errors.As(err, &code) {
		return err
	}
	return exitCode{exitError, err}
}

type doctorFlags struct {
	volumes       string
	driverName    string
	targets       []string
	fix           bool
	deleteVolumes []string
	json          bool
	wait, timeout time.Duration
	leastWait     time.Duration // minimum wait between the two reads that --fix makes
}

// doctorCommand returns the doctor command. With --fix, it reads the targets twice, at least
// leastWait apart.
func doctorCommand(leastWait time.Duration) *cobra.Command {
	f := doctorFlags{leastWait: leastWait}
	cmd := &cobra.Command{
		Use:   "doctor [--volumes FILE] [--fix]",
		Short: "Find leftovers and differences on targets",
		Long: `doctor reads all targets of config.json, with the credentials of the controller, and prints
what is left over or differs:
  - exports, initiator groups and internal snapshots that nothing needs any more
  - objects of operations that were interrupted
  - objects that exist twice, volumes that cannot be used, exports to every host
  - targets that do not answer, lvstores that are not loaded, and fenced nodes
and, with a list of the volumes that Kubernetes knows (--volumes):
  - volumes and snapshots that Kubernetes does not name (orphans)
  - PersistentVolumes whose volume is missing or too small
  - exports to nodes to which Kubernetes does not attach the volume, and missing exports

Each finding has the object, what is wrong, what doctor would do, and a command for doing it by
hand. doctor changes nothing without --fix. With it, doctor deletes only what certainly holds no
data. It deletes an orphan only if --delete-volume names it.

A call of the driver that is in flight leaves the same traces as one that was interrupted.
Therefore doctor reads a target again after --wait, and reports only what both readings show.

The list must have all volumes of all clusters that use the targets. It is read after the first
reading of the targets; so with a delay, as in the example, volumes that are being created are not
mistaken for orphans. Without VolumeAttachments or VolumeSnapshotContents in the list, these are
not compared. A list may also have one volume id (TARGET:UUID) on each line.

Exit codes: 0 nothing was found, or all of it was repaired; 1 something was found; 2 error.`,
		Example: `  (sleep 10; kubectl get pv,volumeattachment,volumesnapshotcontent -o json) |
    kubectl -n spdkcsi exec -i deployment/spdkcsi-controller -c spdkcsi-controller -- \
      spdk-csi doctor --volumes -
  spdk-csi doctor --fix`,
		Args: func(cmd *cobra.Command, args []string) error { return asError(cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asError(f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return asError(err) })
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.volumes, "volumes", "", "file with the volumes that Kubernetes knows, or - for standard input")
	fs.StringVar(&f.driverName, "drivername", driver.DefaultName, "name of the driver in the list of volumes")
	fs.StringSliceVar(&f.targets, "target", nil, "read only this target of config.json; may be repeated")
	fs.BoolVar(&f.fix, "fix", false, "repair what can be repaired without losing data")
	fs.StringSliceVar(&f.deleteVolumes, "delete-volume", nil, "with --fix and --volumes: delete this orphan, TARGET:UUID, and its data; may be repeated")
	fs.BoolVar(&f.json, "json", false, "print the findings as JSON")
	fs.DurationVar(&f.wait, "wait", leastWait, "time between the two readings. 0: read once, report even objects of calls in flight, and repair nothing")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "time limit for reading one target")
	return cmd
}

func (f doctorFlags) check() error {
	switch {
	case f.fix && f.wait < f.leastWait:
		return fmt.Errorf("--fix needs --wait=%s or more, because calls in flight may take that long", f.leastWait)
	case len(f.deleteVolumes) > 0 && (!f.fix || f.volumes == ""):
		return errors.New("--delete-volume needs --fix and --volumes with the complete list of volumes")
	case f.wait < 0 || f.timeout <= 0:
		return errors.New("--wait and --timeout must not be negative")
	}
	return nil
}

func (f doctorFlags) run(ctx context.Context, in io.Reader, out, notes io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	targets, closeAll, err := f.open(notes)
	if err != nil {
		return err
	}
	defer closeAll()
	found, err := f.examine(ctx, targets, in, notes)
	if err != nil {
		return err
	}
	if err := doctor.DeleteOrphans(found, targets, f.deleteVolumes); err != nil {
		return err
	}
	p := printer{out: out, flags: f}
	p.findings(found)
	results := make([]result, len(found))
	for i, finding := range found {
		results[i] = result{Finding: finding}
		if f.fix && finding.Repair != "" {
			results[i].apply(ctx)
			p.result(results[i])
		}
	}
	if err := p.end(results); err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r result) bool { return !r.Repaired }) {
		return exitCode{code: exitFindings}
	}
	return nil
}

func (f doctorFlags) open(notes io.Writer) (targets []doctor.Target, closeAll func(), err error) {
	return openTargets(f.targets, notes)
}

// openTargets opens the named targets from config.json, or all targets if names is empty, using the
// controller's credentials. The caller must call closeAll.
func openTargets(names []string, notes io.Writer) (targets []doctor.Target, closeAll func(), err error) {
	c, err := openController(notes)
	if err != nil {
		return nil, nil, err
	}
	all, err := c.DoctorTargets()
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(t doctor.Target) bool { return t.Name == name }) {
			c.Close()
			return nil, nil, fmt.Errorf("--target %s: config.json contains no such target", name)
		}
	}
	for _, t := range all {
		if len(names) == 0 || slices.Contains(names, t.Name) {
			targets = append(targets, t)
		}
	}
	return targets, c.Close, nil
}

// openController returns a controller configured from config.json. The caller must close the
// controller.
func openController(notes io.Writer) (*controller.Controller, error) {
	cfg, err := config.Load()
	if err != nil {
		return nil, err
	}
	credentials, err := config.CredentialsFile()
	if err != nil {
		return nil, err
	}
	return controller.New(cfg, credentials, slog.New(slog.NewTextHandler(notes, &slog.HandlerOptions{Level: slog.LevelError})))
}

func (f doctorFlags) examine(ctx context.Context, targets []doctor.Target, in io.Reader, notes io.Writer) ([]doctor.Finding, error) {
	began := time.Now()
	e := doctor.Examination{Targets: targets, Hosts: controller.HostOf, Timeout: f.timeout, Partial: len(f.targets) > 0}
	if f.wait > 0 {
		e.Wait = func(ctx context.Context) error { return controller.Pause(ctx, time.Until(began.Add(f.wait))) }
	}
	e.Early = func(found []doctor.Finding) {
		for _, finding := range found {
			_, _ = fmt.Fprintf(notes, "%s: %s: %s. Reading the other storage servers a second time …\n", finding.Target, finding.Kind, finding.Problem)
		}
	}
	if f.volumes != "" {
		e.Known = func() (*doctor.Known, error) {
			text, err := readList(f.volumes, in)
			if err != nil {
				return nil, fmt.Errorf("--volumes: %w", err)
			}
			known, err := doctor.ParseKnown(text, f.driverName)
			if err != nil {
				return nil, fmt.Errorf("--volumes: %w", err)
			}
			if len(known.Volumes) == 0 && len(f.deleteVolumes) > 0 {
				return nil, fmt.Errorf("--volumes: the list has no volume of the driver %s, so it cannot be the complete list: nothing is deleted", f.driverName)
			}
			return known, nil
		}
	}
	return e.Run(ctx)
}

func readList(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(path)
}

// A result is a finding, and whether the command repaired it.
type result struct {
	doctor.Finding
	Repaired bool   `json:"mended"`
	Error    string `json:"error,omitempty"`
}

func (r *result) apply(ctx context.Context) {
	err := r.Apply(ctx)
	r.Repaired = err == nil
	if err != nil {
		r.Error = err.Error()
	}
}

// A printer prints findings either as text, as soon as they are known, or as a single JSON document
// at the end.
type printer struct {
	out   io.Writer
	flags doctorFlags
}

func (p printer) line(format string, args ...any) {
	if !p.flags.json {
		_, _ = fmt.Fprintln(p.out, printable.String(fmt.Sprintf(format, args...)))
	}
}

func (p printer) findings(found []doctor.Finding) {
	repair := "would do"
	if p.flags.fix {
		repair = "will do"
	}
	repairable := 0
	for _, f := range found {
		p.line("%s: %s: %s", f.Target, f.Kind, f.Object)
		p.line("  problem:  %s", f.Problem)
		if f.Repair != "" {
			repairable++
			p.line("  %-9s %s", repair+":", f.Repair)
		} else {
			p.line("  %-9s nothing", repair+":")
		}
		p.line("  by hand:  %s", f.Command)
	}
	switch {
	case len(found) == 0:
		p.line("Nothing was found.")
	case p.flags.wait == 0:
		p.line("%s of one reading: calls in flight may be the cause. Nothing was changed.", plural(len(found), "finding"))
	case !p.flags.fix:
		p.line("%s; --fix would repair %d. Nothing was changed.", plural(len(found), "finding"), repairable)
	}
}

// plural formats a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (p printer) result(r result) {
	if r.Repaired {
		p.line("repaired: %s: %s", r.Target, r.Object)
	} else {
		p.line("not repaired: %s: %s: %s", r.Target, r.Object, r.Error)
	}
}

func (p printer) end(results []result) error {
	if !p.flags.json {
		return nil
	}
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		// Confirmed reports whether the findings are certain, either because both reads of the
		// targets found them or because a single read proves them.
		Confirmed bool     `json:"confirmed"`
		Findings  []result `json:"findings"`
	}{p.flags.wait > 0, results})
}
