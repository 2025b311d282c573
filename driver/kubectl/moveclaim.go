package kubectl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// retain is the reclaim policy with which Kubernetes keeps a volume without a claim.
const retain = "Retain"

// deleteClaim deletes the claim after everything that is needed to recreate it has been stored, and
// the original's PersistentVolume is known to be retained. The claim is deleted only as it was
// stored.
func (m Move) deleteClaim(ctx context.Context, r *record, claim object) error {
	if claim.terminated() && r.state != stateSwitching {
		return fmt.Errorf("%w: another user or program is deleting claim %s", ErrOtherClaim, m.claimName())
	}
	for _, check := range []func() error{
		func() error { return m.checkUnused(ctx, r.old.name()) },
		func() error { return m.checkLock(ctx, r) },
		func() error { return m.retainOriginal(ctx, r) },
		func() error { return m.provideCopy(ctx, r) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	const attempts = 5 // controllers may change the claim at any time
	for attempt := 1; !claim.terminated(); attempt++ {
		if err := m.checkBinds(claim, r.copied); err != nil {
			return err
		}
		r.claim, r.state = claim, stateSwitching
		if err := m.save(ctx, r); err != nil {
			return err
		}
		failed := m.remove(ctx, claimObjects(m.Namespace), claim, true)
		if failed == nil {
			break
		}
		now, err := m.find(ctx, claimObjects(m.Namespace), m.Claim)
		if err != nil || attempt == attempts {
			return errors.Join(failed, err)
		}
		if !r.isOriginal(now) {
			break // deleted, although kubectl failed
		}
		if now.text("metadata", "resourceVersion") == claim.text("metadata", "resourceVersion") {
			return failed
		}
		claim = now
	}
	return m.awaitDeletion(ctx, r)
}

// awaitDeletion waits until the original claim no longer exists.
func (m Move) awaitDeletion(ctx context.Context, r *record) error {
	return m.await(ctx, func() (string, error) {
		claim, err := m.find(ctx, claimObjects(m.Namespace), m.Claim)
		if err != nil || !r.isOriginal(claim) {
			return "", err
		}
		pods, err := m.users(ctx)
		return fmt.Sprintf("claim %s is being deleted, and is recreated when it is gone. Delete the pods that use it (%s), and run %s",
			m.claimName(), strings.Join(pods, ", "), m.again()), err
	})
}

// await calls pending until it returns an empty string. After pauses of m.Patience, await returns
// the string as an error.
func (m Move) await(ctx context.Context, pending func() (string, error)) error {
	for waited := time.Duration(0); ; waited += m.Poll {
		why, err := pending()
		if err != nil || why == "" {
			return err
		}
		if waited >= m.Patience {
			return errors.New(why)
		}
		if err := m.pause(ctx); err != nil {
			return err
		}
	}
}

func (m Move) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(m.Poll):
		return nil
	}
}

// retainOriginal makes Kubernetes keep the original when its claim is deleted. It returns nil only
// after it has read the policy.
func (m Move) retainOriginal(ctx context.Context, r *record) error {
	var failed error
	for range 5 { // controllers may change the PersistentVolume at any time
		volume, err := m.original(ctx, r)
		if err != nil {
			return err
		}
		if volume.text("spec", "persistentVolumeReclaimPolicy") == retain {
			return nil
		}
		volume.set(retain, "spec", "persistentVolumeReclaimPolicy")
		_, failed = m.replace(ctx, volumeObjects, volume)
	}
	return fmt.Errorf("PersistentVolume %s does not get the reclaim policy Retain, so claim %s was not deleted: %w", r.old.name(), m.claimName(), failed)
}

// original returns the original's PersistentVolume. It fails if the PersistentVolume does not
// exist, or now belongs to a different claim.
func (m Move) original(ctx context.Context, r *record) (object, error) {
	volume, err := m.find(ctx, volumeObjects, r.old.name())
	switch {
	case err != nil:
		return nil, err
	case volume == nil || volume.uid() != r.old.uid() || volume.terminated():
		return nil, fmt.Errorf("%w: PersistentVolume %s of the original is deleted, or is being deleted", ErrOtherClaim, r.old.name())
	case volume.text("spec", "claimRef", "uid") != r.claim.uid():
		return nil, fmt.Errorf("%w: PersistentVolume %s of the original belongs to another claim", ErrOtherClaim, r.old.name())
	}
	return volume, nil
}

// provideCopy creates the copy's PersistentVolume, which only a claim with the name of the original
// one can use.
func (m Move) provideCopy(ctx context.Context, r *record) error {
	volume, err := m.find(ctx, volumeObjects, r.copied.name())
	if err != nil {
		return err
	}
	if volume == nil {
		created, err := r.copied.copied()
		if err == nil {
			_, err = m.create(ctx, volumeObjects, created)
		}
		return err
	}
	for _, path := range [][]string{{"spec", "csi", "driver"}, {"spec", "csi", "volumeHandle"}, {"spec", "claimRef", "namespace"}, {"spec", "claimRef", "name"}} {
		if got, want := volume.text(path...), r.copied.text(path...); got != want {
			return fmt.Errorf("%w: PersistentVolume %s exists, and its %s is %q, not %q", ErrOtherClaim, volume.name(), strings.Join(path, "."), got, want)
		}
	}
	if volume.terminated() {
		return fmt.Errorf("%w: PersistentVolume %s of the copy is being deleted", ErrOtherClaim, volume.name())
	}
	return nil
}

// checkBinds fails if Kubernetes would not bind the claim to the copy's PersistentVolume.
func (m Move) checkBinds(claim, volume object) error {
	modeOf := func(o object) string {
		if mode := o.text("spec", "volumeMode"); mode != "" {
			return mode
		}
		return "Filesystem"
	}
	why := ""
	has, _ := volume.at("spec", "accessModes").([]any)
	wants, _ := claim.at("spec", "accessModes").([]any)
	request, errRequest := resource.ParseQuantity(claim.text("spec", "resources", "requests", "storage"))
	capacity, errCapacity := resource.ParseQuantity(volume.text("spec", "capacity", "storage"))
	switch {
	case errRequest != nil || errCapacity != nil:
		why = fmt.Sprintf("the sizes cannot be read: %v", errors.Join(errRequest, errCapacity))
	case request.Cmp(capacity) > 0:
		why = fmt.Sprintf("the claim requests %s, and the copy has %s", request.String(), capacity.String())
	case claim.text("spec", "storageClassName") != volume.text("spec", "storageClassName"):
		why = "their StorageClasses differ"
	case claim.text("spec", "volumeAttributesClassName") != volume.text("spec", "volumeAttributesClassName"):
		why = "their VolumeAttributesClasses differ"
	case modeOf(claim) != modeOf(volume):
		why = "their volume modes differ"
	case slices.ContainsFunc(wants, func(mode any) bool { return !slices.Contains(has, mode) }):
		why = "the copy lacks access modes of the claim"
	default:
		return nil
	}
	return fmt.Errorf("claim %s: %w: Kubernetes would not bind it to the copy: %s. The claim still uses the original. Run %s, delete the copy, and move the volume again",
		m.claimName(), ErrNotMovable, why, m.again("--keep-original"))
}

// recreateClaim creates the claim again, for the copy's PersistentVolume.
func (m Move) recreateClaim(ctx context.Context, r *record) error {
	if err := m.provideCopy(ctx, r); err != nil {
		return err
	}
	created, err := r.newClaim()
	if err != nil {
		return err
	}
	_, failed := m.create(ctx, claimObjects(m.Namespace), created)
	if failed == nil {
		return nil
	}
	claim, err := m.find(ctx, claimObjects(m.Namespace), m.Claim)
	switch {
	case err != nil || claim == nil:
		return fmt.Errorf("claim %s is deleted, and could not be created again. Nothing is lost: both volumes and the record of the move are kept. "+
			"Remove the cause, and run %s: %w", m.claimName(), m.again(), errors.Join(failed, err))
	case r.usesCopy(claim):
		return nil
	}
	return m.otherClaim(claim)
}

// ofBinding lists the annotations that Kubernetes sets on a claim while it provisions and binds its
// volume.
var ofBinding = []string{
	"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
	"volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner",
	"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-resizer",
}

// newClaim returns the claim for the copy. It has the labels, the annotations and the owners of the
// original claim. A pod as the owner is left out: when the pod is deleted, Kubernetes would delete
// the claim.
func (r *record) newClaim() (object, error) {
	from, err := r.claim.copied()
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": from.name(), "namespace": from.text("metadata", "namespace")}
	if labels := from.at("metadata", "labels"); labels != nil {
		metadata["labels"] = labels
	}
	annotations := from.texts("metadata", "annotations")
	maps.DeleteFunc(annotations, func(key, _ string) bool { return slices.Contains(ofBinding, key) })
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	var owners []any
	all, _ := from.at("metadata", "ownerReferences").([]any)
	for _, o := range all {
		owner, _ := o.(map[string]any)
		if owner["kind"] == "Pod" {
			continue
		}
		delete(owner, "blockOwnerDeletion") // which would need permission to change the owner
		owners = append(owners, owner)
	}
	if len(owners) > 0 {
		metadata["ownerReferences"] = owners
	}
	from.set(r.copied.name(), "spec", "volumeName")
	return object{"metadata": metadata, "spec": from["spec"]}, nil
}

// finish waits until the claim is bound to the copy, and prints what to do next.
func (m Move) finish(ctx context.Context, r *record) error {
	err := m.await(ctx, func() (string, error) {
		claim, err := m.find(ctx, claimObjects(m.Namespace), m.Claim)
		if err != nil || r.usesCopy(claim) && claim.text("status", "phase") == "Bound" && !claim.terminated() {
			return "", err
		}
		return fmt.Sprintf("claim %s is not bound to PersistentVolume %s: see kubectl --namespace=%s describe pvc %s. Both volumes are kept",
			m.claimName(), r.copied.name(), m.Namespace, m.Claim), nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(m.Out, "Claim %s uses the copy %s. The original %s is kept.\nStart the pods, and make sure that they have their data. Then delete the original: %s\n",
		m.claimName(), r.copied.text("spec", "csi", "volumeHandle"), r.old.text("spec", "csi", "volumeHandle"), m.again("--delete-original"))
	return nil
}
