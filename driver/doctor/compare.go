package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// compare finds differences between the records in Kubernetes and the targets. It ignores targets
// that could not be read.
func (e Examination) compare(all []*Reading, known *Known) (found []Finding) {
	readings := map[string]*Reading{}
	for _, r := range all {
		readings[r.target.Name] = r
		if r.err == nil {
			found = append(found, r.orphans(known, all, e.Hosts)...)
		}
	}
	for _, handle := range slices.Sorted(maps.Keys(known.Volumes)) {
		pv := known.Volumes[handle]
		id, err := request.ParseVolumeID(handle)
		if err != nil || id.Target == "" {
			continue // provisioned manually
		}
		if id.Replicated() {
			found = append(found, e.ofReplicated(id, handle, pv, all)...)
			continue
		}
		r := readings[id.Target]
		if r == nil {
			if !e.Partial && (!pv.ByHand || pv.Name == "") {
				found = append(found, Finding{Kind: Missing, Target: id.Target, Object: describe(handle, pv), Volume: handle,
					Problem: fmt.Sprintf("config.json has no target %s", id.Target), Command: "add the target to nodes in config.json", subjects: []string{id.UUID}})
			}
			continue
		}
		if r.err == nil {
			found = append(found, r.ofPV(id, pv, known, e.Hosts)...)
		}
	}
	return found
}

func describe(handle string, pv PV) string {
	if pv.Name == "" {
		return "volume " + handle
	}
	return "PersistentVolume " + pv.Name + " (" + handle + ")"
}

// orphans finds volumes and snapshots that Kubernetes does not list. all contains the readings of
// all targets.
func (r *Reading) orphans(known *Known, all []*Reading, hosts func(string) export.Host) (found []Finding) {
	for _, l := range r.lvols {
		id := request.VolumeID{Target: r.target.Name, UUID: l.UUID}
		listed := known.names(id)
		if l.Kind == volume.KindSnapshot {
			listed = known.Snapshots == nil || known.Snapshots[id.String()]
		}
		if listed || !r.target.Permits(l) || l.Kind != volume.KindVolume && l.Kind != volume.KindSnapshot {
			continue
		}
		if f, ok := r.ofMove(l, all, hosts); ok {
			found = append(found, f)
			continue
		}
		if l.Kind == volume.KindSnapshot {
			found = append(found, r.finding(Orphan, "snapshot "+l.Store+"/"+l.Name, l.UUID, "the list of snapshots does not name it. It may belong to another cluster, or hold data that is still needed").
				with(l.Source, anyName).byHand(r.call("spdkgate_lvol_delete name=%s", l.UUID)))
			continue
		}
		detail := fmt.Sprintf("the list of volumes does not contain this volume of %d bytes, which may belong to another cluster, or hold data that is still needed", r.sizes[l.UUID])
		found = append(found, r.finding(Orphan, "volume "+l.Store+"/"+l.Name, l.UUID, detail).with(namePrefix+l.Name).
			byHand(fmt.Sprintf("make sure that no cluster that uses this target names it (kubectl get pv -o yaml | grep %s); then %s", l.UUID, deletion(id))))
	}
	return found
}

// deletion returns the commands that delete a volume that Kubernetes does not list.
func deletion(id request.VolumeID) string {
	return fmt.Sprintf("kubectl spdkgate doctor --fix --delete-volume %s, or spdk-csi doctor --volumes - --fix --delete-volume %s with the list described in docs/doctor.md as standard input", id, id)
}

// ofPV compares a PersistentVolume with its target.
func (r *Reading) ofPV(id request.VolumeID, pv PV, known *Known, hosts func(string) export.Host) (found []Finding) {
	object := describe(id.String(), pv)
	l, exists := r.byID[id.UUID]
	if !exists {
		if pv.Going {
			return nil // Kubernetes removes the PV after it deletes the volume
		}
		return []Finding{r.finding(Missing, object, id.UUID, "its volume does not exist on the target. Its data is lost, unless a backup or a snapshot has it").
			byHand("restore the data from a snapshot or a backup, or delete the claim")}
	}
	if l.Nested {
		return []Finding{r.finding(Broken, object, id.UUID, fmt.Sprintf("only %s/%s has this UUID, but its lvstore is on a logical volume, so it is a different volume that a host has written", l.Store, l.Name)).
			byHand(r.call("bdev_lvol_get_lvols"))}
	}
	if pv.Going {
		found = append(found, r.finding(HalfMade, object, id.UUID, "Kubernetes has begun to delete it, but its volume still exists").
			byHand("kubectl describe pv "+pv.Name+": its events show the reason; Kubernetes repeats the deletion"))
	}
	if size := r.sizes[id.UUID]; size > 0 && size < pv.Bytes {
		found = append(found, r.finding(TooSmall, object, id.UUID, fmt.Sprintf("the volume %s/%s has %d bytes, but Kubernetes has recorded %d", l.Store, l.Name, size, pv.Bytes)).
			byHand(r.call("bdev_lvol_resize name=%s size_in_mib=%d", id.UUID, (pv.Bytes+volume.MiB-1)/volume.MiB)))
	} else if size < 0 && !l.Degraded {
		found = append(found, r.finding(Broken, "volume "+l.Store+"/"+l.Name, id.UUID, "SPDK lists it, but could not create its bdev: see the target's log").
			byHand(r.call("bdev_get_bdevs name=%s", id.UUID)))
	}
	if known.Attached == nil {
		return found
	}
	return append(found, r.attached(id, object, known.Attached[id.String()], hosts)...)
}

// attached compares the nodes that Kubernetes attaches a volume to with the hosts that the target
// exports it to.
func (r *Reading) attached(id request.VolumeID, object string, to []Attachment, hosts func(string) export.Host) (found []Finding) {
	var admitted []string
	complete, open := false, false
	for _, e := range r.exports {
		if e.Volume == id.UUID {
			admitted, complete, open = e.Hosts, e.Complete, e.Open
		}
	}
	allowed := map[string]bool{}
	for _, name := range admitted {
		if copied, ok := hostname.CopyOf(name); ok && copied != id.UUID { // the volume has been copied
			mover := hosts(hostname.MoveNode(id.UUID, copied))
			allowed[mover.NQN], allowed[mover.Multipath], allowed[mover.IQN] = true, true, true
		}
	}
	for _, a := range to {
		h := hosts(a.Node)
		allowed[h.NQN], allowed[h.Multipath], allowed[h.IQN] = true, true, true
		has := complete && (open || slices.ContainsFunc([]string{h.NQN, h.IQN}, func(name string) bool { return slices.Contains(admitted, name) }))
		if a.Done && !has && !r.isFenced(h) {
			found = append(found, r.finding(NotExported, object+" on node "+a.Node, id.UUID, "Kubernetes attaches it to this node, but the target does not export it there").
				byHand("none if the controller has a Secret of its own: csi-attacher publishes it again within a minute; otherwise delete the pod that uses it"))
		}
	}
	strangers := slices.DeleteFunc(slices.Clone(admitted), func(h string) bool { return allowed[h] })
	if len(strangers) > 0 {
		slices.Sort(strangers)
		found = append(found, r.finding(WrongHost, object+" to host "+strings.Join(strangers, ", "), id.UUID, "the target exports it to a host that is not a node to which Kubernetes attaches it: if that host is still writing, data can be damaged").
			byHand(r.withdraw(id.UUID, strangers[0])))
	}
	return found
}

func (r *Reading) withdraw(uuid, host string) string {
	if strings.HasPrefix(host, "iqn.") {
		return r.call("iscsi_delete_target_node name=%s", export.IQN(uuid))
	}
	return r.call("nvmf_subsystem_remove_host nqn=%s host=%s", export.NQN(uuid), host)
}

// DeleteOrphans makes Apply delete the orphans with the given ids. It fails if an id does not
// belong to an orphan volume, so that no volume is deleted by mistake.
func DeleteOrphans(all []Finding, targets []Target, ids []string) error {
	var problems []error
	for _, text := range ids {
		i := slices.IndexFunc(all, func(f Finding) bool {
			return (f.Kind == Orphan || f.Kind == Move) && f.Volume == text && strings.HasPrefix(f.Object, "volume ")
		})
		if i < 0 {
			problems = append(problems, fmt.Errorf("no orphan volume %s was found on any target: it was not deleted", text))
			continue
		}
		id, err := request.ParseVolumeID(text)
		t := slices.IndexFunc(targets, func(t Target) bool { return t.Name == id.Target })
		if err != nil || t < 0 {
			problems = append(problems, fmt.Errorf("%s is not on a target that was read", text))
			continue
		}
		all[i] = all[i].repairedBy("delete it with all its data, because --delete-volume names it", func(ctx context.Context) error {
			return targets[t].Delete(ctx, id.UUID) // fails while a host is admitted
		})
	}
	return errors.Join(problems...)
}

// ofReplicated reports a replicated volume if none of its replicas exists on any target. Only the
// witness records which replicas a volume should have, so a single missing replica is not reported.
func (e Examination) ofReplicated(id request.VolumeID, handle string, pv PV, all []*Reading) []Finding {
	if e.Partial || pv.Going {
		return nil
	}
	for _, r := range all {
		if r.err != nil || slices.ContainsFunc(r.lvols, func(l volume.Listed) bool { return l.Kind == volume.KindReplica && l.Source == id.UUID }) {
			return nil
		}
	}
	return []Finding{{
		Kind: Missing, Target: request.ReplicatedTarget, Object: describe(handle, pv), Volume: handle, subjects: []string{id.UUID},
		Problem: "no target has a replica of it. Its data is lost, unless a backup has it", Command: "restore the data from a backup, or delete the claim",
	}}
}
