package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/request"
)

// These are the reasons why a move is refused.
var (
	// ErrInUse means that pods use the volume, or that Kubernetes has attached it to a node.
	ErrInUse = errors.New("the volume is in use")
	// ErrNotMovable means that spdk-csi cannot move the volume.
	ErrNotMovable = errors.New("the volume cannot be moved")
	// ErrOtherClaim means that the claim is not the one that the move began with.
	ErrOtherClaim = errors.New("the claim is not the one that the move began with")
	// ErrOtherMove means that the command does not match the move that has begun.
	ErrOtherMove = errors.New("a move of the claim has begun")
	// ErrNoMove means that no move of the claim is recorded.
	ErrNoMove = errors.New("no move of the claim is recorded")
	// ErrStale means that the copy may lack data of the original.
	ErrStale = errors.New("nodes could have attached the original since it was copied")
)

// A Move moves the volume of a claim to another lvstore or storage server. A Job in the driver's
// namespace copies the volume; then the claim is recreated with the copy.
//
// Everything that is needed to continue is stored in a ConfigMap, so that each method can be
// interrupted at any point and called again.
type Move struct {
	Client
	// Driver is the name of the driver.
	Driver           string
	Namespace, Claim string
	// Parameters are the parameters of a StorageClass with which the copy is created. If a move has
	// begun, they may be empty.
	Parameters map[string]string
	// Prepare copies a snapshot of the volume while pods use it.
	Prepare bool
	// DaemonSet and NodeContainer name the node plugin. The Job attaches volumes as it does.
	DaemonSet, NodeContainer string
	// Node, if not empty, is the node on which the Job runs.
	Node string
	// KeysSecret names the Secret in the driver's namespace that contains the keys with which nodes
	// authenticate.
	KeysSecret string
	// Notes receives the progress, and Out receives the result.
	Notes, Out io.Writer
	// Poll is the time between two queries, and Patience is the time that Kubernetes may take for
	// one step.
	Poll, Patience time.Duration
}

// Run copies the volume and makes the claim use the copy. With Prepare, it only copies a snapshot.
// The original is kept.
func (m Move) Run(ctx context.Context) error {
	claim, err := m.find(ctx, claimObjects(m.Namespace), m.Claim)
	if err != nil {
		return err
	}
	r, err := m.loadRecord(ctx)
	switch {
	case err != nil:
		return err
	case r == nil:
		r, err = m.begin(ctx, claim)
	default:
		err = m.accepts(r)
	}
	if err != nil {
		return err
	}
	switch {
	case r.usesCopy(claim):
		return m.finish(ctx, r)
	case r.isOriginal(claim) && m.Prepare:
		return m.prepare(ctx, r, claim)
	case r.isOriginal(claim):
		if err := m.copyVolume(ctx, r, claim); err != nil {
			return err
		}
		if err := m.deleteClaim(ctx, r, claim); err != nil {
			return err
		}
	case claim != nil:
		return m.otherClaim(claim)
	case r.state != stateSwitching:
		return fmt.Errorf("%w: claim %s was deleted, but not by this command. If its PersistentVolume still exists, the data is there; "+
			"`kubectl spdkgate move %s --namespace=%s --keep-original` gives the move up", ErrOtherClaim, m.claimName(), m.Claim, m.Namespace)
	}
	if err := m.recreateClaim(ctx, r); err != nil {
		return err
	}
	return m.finish(ctx, r)
}

func (m Move) claimName() string { return m.Namespace + "/" + m.Claim }

// again returns the command that continues or ends the move.
func (m Move) again(flags ...string) string {
	return "`" + strings.Join(append([]string{"kubectl spdkgate move", m.Claim, "--namespace=" + m.Namespace}, flags...), " ") + "`"
}

func (m Move) otherClaim(claim object) error {
	return fmt.Errorf("%w: another user or program has created claim %s, with volume %q. It was not changed. If its volume is not needed, stop "+
		"what creates the claim, delete it, and run %s", ErrOtherClaim, m.claimName(), claim.text("spec", "volumeName"), m.again())
}

// begin checks that a claim's volume can be moved, and records the move.
func (m Move) begin(ctx context.Context, claim object) (*record, error) {
	if claim == nil {
		return nil, fmt.Errorf("%w: claim %s does not exist. Check --namespace", ErrNoMove, m.claimName())
	}
	if len(m.Parameters) == 0 {
		return nil, fmt.Errorf("%w: --parameter is missing. It decides where the copy is created, for example --parameter=target=storage-2", ErrNotMovable)
	}
	volume, err := m.boundVolume(ctx, claim)
	if err != nil {
		return nil, err
	}
	if !m.Prepare {
		if err := m.checkUnused(ctx, volume.name()); err != nil {
			return nil, err
		}
	}
	return m.createRecord(ctx, claim, volume)
}

// boundVolume returns the PersistentVolume of a claim, and fails unless the driver can move it.
func (m Move) boundVolume(ctx context.Context, claim object) (object, error) {
	refuse := func(format string, args ...any) (object, error) {
		return nil, fmt.Errorf("claim %s: %w: %s", m.claimName(), ErrNotMovable, fmt.Sprintf(format, args...))
	}
	name := claim.text("spec", "volumeName")
	if name == "" || claim.text("status", "phase") != "Bound" || claim.terminated() {
		return refuse("it is not bound to a PersistentVolume, or is being deleted")
	}
	volume, err := m.find(ctx, volumeObjects, name)
	if err != nil {
		return nil, err
	}
	id, invalid := request.ParseVolumeID(volume.text("spec", "csi", "volumeHandle"))
	switch {
	case volume == nil || volume.terminated() || volume.text("spec", "claimRef", "uid") != claim.uid():
		return refuse("PersistentVolume %s does not exist, is being deleted, or belongs to another claim", name)
	case volume.text("spec", "csi", "driver") != m.Driver:
		return refuse("PersistentVolume %s does not belong to driver %s", name, m.Driver)
	case invalid != nil:
		return refuse("PersistentVolume %s: %v", name, invalid)
	case id.Replicated():
		return refuse("it is replicated: its replicas are on several storage servers")
	case id.Target == "":
		return refuse("its id does not name the storage server: run spdk-csi move by hand")
	}
	return volume, nil
}

// checkUnused fails if a pod names the claim, or if Kubernetes has attached the volume to a node.
// It includes pods that have ended, because Kubernetes does not delete a claim while they exist.
func (m Move) checkUnused(ctx context.Context, volume string) error {
	pods, err := m.users(ctx)
	if err != nil {
		return err
	}
	attached, err := m.attachments(ctx, m.Driver)
	if err != nil {
		return err
	}
	var by []string
	for _, name := range pods {
		by = append(by, "pod "+name)
	}
	for _, a := range attached[volume] {
		by = append(by, "node "+a.Spec.NodeName)
	}
	if len(by) == 0 {
		return nil
	}
	return fmt.Errorf("claim %s: %w by %s. Stop the pods, for example by scaling their Deployment or StatefulSet to 0, wait until Kubernetes has detached "+
		"the volume, and repeat this command. To copy most of the data while the pods run, add --prepare", m.claimName(), ErrInUse, strings.Join(by, ", "))
}

// users returns the names of the pods that use the claim.
func (m Move) users(ctx context.Context) (names []string, err error) {
	pods, err := list[claimUser](ctx, m.Client, podsPath(m.Namespace), nil)
	for _, p := range pods {
		if p.uses(m.Claim) {
			names = append(names, p.Metadata.Name)
		}
	}
	return names, err
}

// A claimUser is a pod with the claims that it uses.
type claimUser struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		Volumes []struct {
			Name                  string
			PersistentVolumeClaim *struct{ ClaimName string }
			Ephemeral             *struct{}
		}
	}
}

func (p claimUser) uses(claim string) bool {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
			v.Ephemeral != nil && p.Metadata.Name+"-"+v.Name == claim {
			return true
		}
	}
	return false
}

func (m Move) prepare(ctx context.Context, r *record, claim object) error {
	if r.copied != nil {
		return fmt.Errorf("%w: claim %s has already been copied; run %s", ErrOtherMove, m.claimName(), m.again())
	}
	if _, err := m.runJob(ctx, r, append(m.copyArgs(r), "--prepare"), false); err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "Claim %s is prepared. Stop the pods, and run %s.\n", m.claimName(), m.again())
	return nil
}

// copyVolume copies the volume of a claim, and records the copy.
func (m Move) copyVolume(ctx context.Context, r *record, claim object) error {
	if r.copied != nil {
		return nil
	}
	if err := m.checkUnused(ctx, r.old.name()); err != nil {
		return err
	}
	log, err := m.runJob(ctx, r, m.copyArgs(r), false)
	if err != nil {
		return err
	}
	copied, err := copyIn(log, r)
	if err != nil {
		return fmt.Errorf("the log of Job %s/%s: %w. Delete the Job, and repeat this command", m.Client.Namespace, r.name(), err)
	}
	r.copied = copied
	return m.save(ctx, r)
}

// checkLock fails unless the storage server still admits only the node of the move to the original.
// If it does, nothing was written to the original since it was copied.
func (m Move) checkLock(ctx context.Context, r *record) error {
	id, err := request.ParseVolumeID(r.old.text("spec", "csi", "volumeHandle"))
	if err != nil {
		return err
	}
	copied, err := request.ParseVolumeID(r.copied.text("spec", "csi", "volumeHandle"))
	if err != nil {
		return err
	}
	inv, err := m.Inventory(ctx, id.Target)
	if err := errors.Join(err, Unread(inv)); err != nil {
		return fmt.Errorf("storage server %s does not show whether nodes can attach the original. Nothing was changed; repeat this command: %w", id.Target, err)
	}
	mover := hostname.Of(hostname.MoveNode(id.UUID, copied.UUID))
	for _, t := range inv.Targets {
		for _, v := range t.Volumes {
			if v.ID != id.String() || v.Export == nil || v.Export.Open || len(v.Export.Hosts) == 0 {
				continue
			}
			others := 0
			for _, host := range v.Export.Hosts {
				if host != mover.NQN && host != mover.Multipath().NQN && host != mover.IQN {
					others++
				}
			}
			if others == 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("claim %s: %w to %s. The claim still uses the original. Run %s, delete the copy, and move the volume again", m.claimName(), ErrStale, copied, m.again("--keep-original"))
}
