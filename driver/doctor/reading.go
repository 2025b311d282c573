package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// A Target is one target to read.
type Target struct {
	*volume.Service
	// URL is the URL of the target's proxy, for the commands in findings.
	URL string
	// Account describes the credentials for the proxy, without secrets. CAFile is the file that
	// contains the certificate authorities trusted for the proxy; empty if none is configured.
	Account, CAFile string
}

// A Reading is the state of one target at one time.
type Reading struct {
	target  Target
	err     error // the error that ended the reading, leaving the other fields incomplete
	loads   volume.Loading
	nested  []volume.Nested
	lvols   []volume.Listed
	dropped []volume.Unlisted
	byID    map[string]volume.Listed
	exports []export.Found
	groups  []export.Group
	fenced  []export.FencedHost
	keys    []export.UnusedKey
	// unneeded contains the UUIDs of internal snapshots and helper clones that can be deleted
	// without loss of data.
	unneeded map[string]bool
	// connected contains the hosts that are connected to exports that could be removed.
	connected map[string][]string
	// sizes contains the sizes of volumes in bytes, or -1 for a volume that the target lists but
	// returns no details of.
	sizes map[string]int64
}

// inFlight is the maximum number of concurrent queries for single objects.
const inFlight = 32

// Read reads a target. For an unresponsive target, the reading contains the error. If sizes is set,
// Read also reads the sizes of all volumes, with one query per volume.
func Read(ctx context.Context, t Target, sizes bool) *Reading {
	r := &Reading{target: t, byID: map[string]volume.Listed{}, unneeded: map[string]bool{}, connected: map[string][]string{}, sizes: map[string]int64{}}
	r.err = r.read(ctx, sizes)
	return r
}

func (r *Reading) read(ctx context.Context, sizes bool) (err error) {
	ctx = volume.AskOnce(ctx)
	if r.loads, err = r.target.Loads(ctx); err != nil {
		return err
	}
	if r.nested, err = r.target.Nested(ctx); err != nil {
		return err
	}
	// Exports are read before volumes, because the driver creates a volume before its export, and
	// deletes the export before the volume.
	inspection, err := r.target.Exports().Inspect(ctx)
	if err != nil {
		return err
	}
	r.exports, r.groups, r.fenced = inspection.Exports, inspection.Unused, inspection.Fenced
	if r.keys, err = r.target.Exports().UnusedKeys(ctx); err != nil {
		return fmt.Errorf("target %s: list keys: %w", r.target.Name, err)
	}
	if r.lvols, err = r.target.Inspect(ctx, r.nested); err != nil {
		return err
	}
	if r.dropped, err = r.target.Unlisted(ctx); err != nil {
		return err
	}
	for _, l := range r.lvols {
		if _, known := r.byID[l.UUID]; !known || !l.Nested { // a host can write an lvstore with any UUID
			r.byID[l.UUID] = l
		}
	}
	return r.readSingle(ctx, sizes)
}

// readSingle queries details that the lists do not contain, but only of objects for which the
// details matter.
func (r *Reading) readSingle(ctx context.Context, sizes bool) error {
	type answer struct {
		id        string
		unneeded  bool
		connected []string
		size      int64
	}
	var questions []func(context.Context) (answer, error)
	ask := func(f func(context.Context) (answer, error)) { questions = append(questions, f) }
	for _, l := range r.lvols {
		_, sourceExists := r.byID[l.Source]
		switch {
		case l.Kind == volume.KindInternal && !sourceExists, l.Kind == volume.KindHelper:
			ask(func(ctx context.Context) (answer, error) {
				ok, err := r.target.Unneeded(ctx, l)
				return answer{id: l.UUID, unneeded: ok}, err
			})
		case sizes && l.Kind == volume.KindVolume && r.target.Permits(l):
			ask(func(ctx context.Context) (answer, error) {
				size, err := r.size(ctx, l.UUID)
				return answer{id: l.UUID, size: size}, err
			})
		}
	}
	for _, e := range r.exports {
		if _, exists := r.byID[e.Volume]; exists && (len(e.Hosts) > 0 || e.Open) {
			continue
		}
		ask(func(ctx context.Context) (answer, error) {
			hosts, err := r.target.Exports().Connected(ctx, e.Volume)
			return answer{id: e.Volume, connected: hosts}, err
		})
	}
	answers := make([]answer, len(questions))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i, q := range questions {
		g.Go(func() (err error) {
			answers[i], err = q(ctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, a := range answers {
		r.unneeded[a.id] = r.unneeded[a.id] || a.unneeded
		r.connected[a.id] = append(r.connected[a.id], a.connected...)
		r.sizes[a.id] += a.size
	}
	return nil
}

// size returns the size of a volume in bytes, 0 if the volume has been deleted in the meantime, or
// -1 if the target returns no details of it.
func (r *Reading) size(ctx context.Context, id string) (int64, error) {
	v, err := r.target.Get(ctx, id)
	switch {
	case errors.Is(err, volume.ErrNotFound):
		return 0, nil
	case errors.Is(err, volume.ErrDegraded):
		return -1, nil
	}
	return v.SizeBytes, err
}

// id returns the volume handle, as Kubernetes stores it, of a volume on this target.
func (r *Reading) id(uuid string) string {
	return request.VolumeID{Target: r.target.Name, UUID: uuid}.String()
}

// call returns the command line for making an RPC manually.
func (r *Reading) call(format string, args ...any) string {
	return fmt.Sprintf("spdk-proxy call "+format, args...) + " --url " + r.target.URL + " --user USER"
}

// finding returns a finding about an object on this target.
func (r *Reading) finding(k Kind, object, uuid, problem string) Finding {
	f := Finding{Kind: k, Target: r.target.Name, Object: object, Problem: problem}
	if uuid != "" {
		f.Volume = r.id(uuid)
		f.subjects = []string{uuid}
	}
	return f
}

func (f Finding) with(subjects ...string) Finding {
	f.subjects = slices.Concat(f.subjects, subjects)
	return f
}

func (f Finding) byHand(command string) Finding {
	f.Command = command
	return f
}

func (f Finding) repairedBy(action string, do func(context.Context) error) Finding {
	f.Repair, f.repair = action, do
	return f
}
