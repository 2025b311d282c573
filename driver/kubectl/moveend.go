package kubectl

import (
	"context"
	"fmt"
)

// DeleteOriginal deletes the original, after the claim uses the copy, and the record of the move.
func (m Move) DeleteOriginal(ctx context.Context) error {
	claim, r, err := m.recorded(ctx)
	if err != nil {
		return err
	}
	if !r.usesCopy(claim) || claim.text("status", "phase") != "Bound" || claim.terminated() {
		return fmt.Errorf("the original was not deleted: claim %s: %w: it does not use the copy. Run %s first", m.claimName(), ErrOtherClaim, m.again())
	}
	if r.state != stateDeleted {
		// An administrator may have given the PersistentVolume to another claim.
		if _, err := m.original(ctx, r); err != nil {
			return fmt.Errorf("the original was not deleted: %w", err)
		}
		args, err := m.endArgs(r)
		if err != nil {
			return err
		}
		if _, err := m.runJob(ctx, r, args, false); err != nil {
			return err
		}
		r.state = stateDeleted
		if err := m.save(ctx, r); err != nil {
			return err
		}
	}
	volume, err := m.find(ctx, volumeObjects, r.old.name())
	if err != nil {
		return err
	}
	if volume != nil && volume.uid() == r.old.uid() && !volume.terminated() {
		if err := m.remove(ctx, volumeObjects, volume, false); err != nil {
			return err
		}
	}
	if err := m.remove(ctx, configMapObjects(m.Client.Namespace), r.configMap, false); err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "The original %s of claim %s is deleted.\n", r.old.text("spec", "csi", "volumeHandle"), m.claimName())
	return nil
}

// recorded returns the claim and the record of its move.
func (m Move) recorded(ctx context.Context) (claim object, r *record, err error) {
	if claim, err = m.find(ctx, claimObjects(m.Namespace), m.Claim); err != nil {
		return nil, nil, err
	}
	if r, err = m.loadRecord(ctx); err == nil && r == nil {
		err = fmt.Errorf("%w: nothing was changed. Check --namespace; the move may already be at its end", ErrNoMove)
	}
	return claim, r, err
}

// KeepOriginal gives a move up: nodes can attach the original again. It fails if the claim has been
// deleted or uses the copy. The copy is kept, but nothing refers to it.
func (m Move) KeepOriginal(ctx context.Context) error {
	claim, r, err := m.recorded(ctx)
	switch {
	case err != nil:
		return err
	case r.usesCopy(claim):
		return fmt.Errorf("claim %s: %w: it uses the copy, to which pods may have written. To use the original's storage server again, run %s, and move the volume back",
			m.claimName(), ErrOtherMove, m.again("--delete-original"))
	case r.state == stateSwitching && (claim == nil || claim.terminated()):
		return fmt.Errorf("claim %s: %w: it is deleted, or being deleted, to be created again with the copy. Run %s", m.claimName(), ErrOtherMove, m.again())
	case !r.isOriginal(claim) && claim != nil:
		return m.otherClaim(claim)
	}
	// From now on, the claim is never made to use the copy, which may soon lack data.
	r.state = stateKeeping
	if err := m.save(ctx, r); err != nil {
		return err
	}
	if _, err := m.runJob(ctx, r, append(m.moveArgs(), "--keep-original"), true); err != nil {
		return err
	}
	if err := m.discardCopy(ctx, r); err != nil {
		return err
	}
	now, err := m.find(ctx, claimObjects(m.Namespace), m.Claim)
	if err != nil {
		return err
	}
	if r.isOriginal(claim) && !r.isOriginal(now) {
		return fmt.Errorf("%w: claim %s was deleted meanwhile. ConfigMap %s/%s still contains it: save what you need, and repeat this command",
			ErrOtherClaim, m.claimName(), m.Client.Namespace, r.name())
	}
	if err := m.restorePolicy(ctx, r, now); err != nil {
		return err
	}
	if err := m.remove(ctx, configMapObjects(m.Client.Namespace), r.configMap, false); err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "Nodes can attach the original %s of claim %s again. kubectl spdkgate doctor shows what is left of the copy, and how to delete it.\n",
		r.old.text("spec", "csi", "volumeHandle"), m.claimName())
	return nil
}

// discardCopy deletes the copy's PersistentVolume, but not the copy.
func (m Move) discardCopy(ctx context.Context, r *record) error {
	if r.copied == nil {
		return nil
	}
	volume, err := m.find(ctx, volumeObjects, r.copied.name())
	if err != nil || volume == nil || volume.terminated() || volume.text("spec", "csi", "volumeHandle") != r.copied.text("spec", "csi", "volumeHandle") {
		return err
	}
	if volume.text("spec", "claimRef", "uid") != "" {
		return fmt.Errorf("%w: PersistentVolume %s of the copy is bound", ErrOtherClaim, volume.name())
	}
	if volume.text("spec", "persistentVolumeReclaimPolicy") != retain {
		volume.set(retain, "spec", "persistentVolumeReclaimPolicy")
		if volume, err = m.replace(ctx, volumeObjects, volume); err != nil {
			return err
		}
	}
	return m.remove(ctx, volumeObjects, volume, true)
}

// restorePolicy restores the reclaim policy of the original, if its claim still uses it.
func (m Move) restorePolicy(ctx context.Context, r *record, claim object) error {
	volume, err := m.find(ctx, volumeObjects, r.old.name())
	policy := r.old.text("spec", "persistentVolumeReclaimPolicy")
	if err != nil || volume == nil || !r.isOriginal(claim) || volume.uid() != r.old.uid() || volume.text("spec", "claimRef", "uid") != claim.uid() ||
		volume.text("spec", "persistentVolumeReclaimPolicy") == policy {
		return err
	}
	volume.set(policy, "spec", "persistentVolumeReclaimPolicy")
	_, err = m.replace(ctx, volumeObjects, volume)
	return err
}
