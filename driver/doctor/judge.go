package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// ofTarget returns the findings that the target alone proves. known lists the volumes of fenced
// nodes, and is used only to omit exports that a fence explains.
func (e Examination) ofTarget(r *Reading, known *Known) []Finding {
	found := append(e.ofFenced(r, known), r.ofNested()...)
	if errors.Is(r.err, volume.ErrStoreMissing) || errors.Is(r.err, volume.ErrNested) {
		return append(found, r.finding(StoreMissing, "target "+r.target.Name, "", r.err.Error()).
			byHand(r.call("bdev_lvol_get_lvstores")))
	}
	if kind, problem, command := r.refused(); kind != "" {
		return append(found, r.finding(kind, "target "+r.target.Name, "", problem+": "+r.err.Error()).byHand(command))
	}
	if r.err != nil {
		return append(found, r.finding(Unreachable, "target "+r.target.Name, "", r.err.Error()).
			byHand(r.call("spdk_get_version")))
	}
	for _, u := range r.dropped {
		found = append(found, r.finding(Dropped, "lvstore "+u.Store.Name, "", fmt.Sprintf("%d bytes are allocated, but belong to no volume that SPDK lists. Either SPDK is still clearing a deleted volume, or it refused to delete a busy volume and no longer lists it. "+
			"If this persists, restart spdk_tgt: the volume then reappears, and doctor names it", u.Bytes())).with(anyCall).
			byHand(r.call("bdev_lvol_get_lvstores")))
	}
	for _, l := range r.lvols {
		found = append(found, r.ofLvol(l)...)
	}
	for _, x := range r.exports {
		found = append(found, r.ofExport(x, e.fenceExplains(r, x.Volume, known))...)
	}
	for _, g := range r.groups {
		found = append(found, r.ofGroup(g))
	}
	for _, k := range r.keys {
		object, byHand := "key "+k.Name, r.call("spdkgate_key_remove name=%s", k.Name)
		if k.Name == "" {
			object, byHand = fmt.Sprintf("authentication group %d", k.Tag), r.call("iscsi_delete_auth_group tag=%d", k.Tag)
		}
		found = append(found, r.finding(LeakedKey, object, "", "no host authenticates with it: publishing or unpublishing a volume was interrupted").with(anyCall).
			repairedBy("delete it", func(ctx context.Context) error { return r.target.Exports().RemoveUnusedKey(ctx, k) }).byHand(byHand))
	}
	return found
}

// refused returns the reason why a reachable target could not be read, and what an administrator
// can do about it. The kind is empty if the failure was not a refusal.
func (r *Reading) refused() (kind Kind, problem, command string) {
	check := "; " + r.call("spdk_get_version") + " shows whether the proxy accepts them"
	switch {
	case errors.Is(r.err, volume.ErrCertificate):
		authorities := "config.json has neither caFile nor ca for it, so only the authorities of the container image are trusted"
		if r.target.CAFile != "" {
			authorities = "caFile is " + r.target.CAFile
		}
		return CertificateUntrusted, "the driver does not trust the certificate of the target's proxy, and sent nothing. " + authorities,
			"give the target in config.json the authority that issued the proxy's certificate, as caFile or ca (in the chart: ca.certificates), or give the proxy a certificate for the host in rpcURL, " + r.target.URL
	case errors.Is(r.err, volume.ErrCredentials):
		return CredentialsRefused, fmt.Sprintf("the target's proxy refused %s, which the controller's secret.json contains for this target", cmp.Or(r.target.Account, "the credentials")),
			"correct the target's entry in rpcTokens of secret.json, in the Secret of the controller (in the chart: credentials), or the user in the proxy's configuration" + check
	case errors.Is(r.err, volume.ErrDenied):
		return Denied, fmt.Sprintf("the target's proxy accepts %s, but does not allow this user to make a required call", cmp.Or(r.target.Account, "the credentials")),
			"give the user the role csi-controller in the proxy's configuration"
	}
	return "", "", ""
}

// ofNested returns a finding for each lvstore and RAID that the target loaded from a volume, and
// for the setting that makes the target load them.
func (r *Reading) ofNested() (found []Finding) {
	refused, _, _ := r.refused()
	if p := r.loads.Problem(); p != "" && (refused == "" || r.loads != volume.LoadsUnknown) {
		found = append(found, r.finding(Loads, "target "+r.target.Name, "", p+". Raw block volumes are refused. A pod with a mounted file system can write such data only if it is privileged").
			byHand(r.call("spdkgate_target_get_info")))
	}
	for _, n := range r.nested {
		object, byHand := fmt.Sprintf("%s %s (%s)", n.Kind, n.Name, n.UUID), r.call("bdev_lvol_get_lvstores")
		if n.Kind == "RAID" {
			object, byHand = "RAID "+n.Name, r.call("bdev_raid_get_bdevs category=all")
		}
		found = append(found, r.finding(Nested, object, "", "the driver does not use it: "+n.Why.Error()).byHand(byHand))
	}
	return found
}

// ofLvol returns the findings that can be derived from an lvol alone.
func (r *Reading) ofLvol(l volume.Listed) (found []Finding) {
	name := l.Store + "/" + l.Name
	remove := func(ctx context.Context) error { return r.target.RemoveUnneeded(ctx, l.UUID) }
	byHand := r.call("spdkgate_lvol_delete name=%s", l.UUID)
	_, sourceExists := r.byID[l.Source]
	switch {
	case !r.target.Permits(l):
	case l.Kind == volume.KindHelper && r.unneeded[l.UUID]:
		found = append(found, r.finding(HalfMade, "helper clone "+name, "", "it was needed only while a clone was being created, which was interrupted. It has no data of its own").
			with(l.UUID, anyName).repairedBy("delete it", remove).byHand(byHand))
	case l.Kind == volume.KindInternal && !sourceExists && r.unneeded[l.UUID]:
		found = append(found, r.finding(LeakedSnapshot, "internal snapshot "+name, "", "its source volume is gone, and at most one clone is left, which no host uses. It takes space. SPDK moves its contents to the clone when it is deleted").
			with(l.UUID, l.Source, anyName).repairedBy("delete it", remove).byHand(byHand))
	}
	if l.Degraded && r.target.Permits(l) {
		found = append(found, r.finding(Broken, string(l.Kind)+" "+name, l.UUID, "SPDK lists it, but could not create its bdev: what lies below it is missing").
			byHand(r.call("bdev_get_bdevs name=%s", l.UUID)))
	}
	return found
}

// ofExport returns the findings that can be derived from an export and the list of volumes. fenced
// means that a fence may have removed the export's hosts.
func (r *Reading) ofExport(e export.Found, fenced bool) []Finding {
	object, byHand := "subsystem "+e.Name, r.withdrawal(e)
	if strings.HasPrefix(e.Name, export.IQN("")) {
		object = "iSCSI target " + e.Name
	}
	_, exists := r.byID[e.Volume]
	connected := r.connected[e.Volume]
	switch {
	case e.Foreign != "":
		return []Finding{r.finding(Broken, object, e.Volume, fmt.Sprintf("this export contains the bdev %s, but the export's name is reserved for the volume %s", e.Foreign, e.Volume)).byHand(byHand)}
	case !exists && (len(connected) > 0 || !r.target.KnowsStores()):
		why := "hosts are connected: " + strings.Join(connected, ", ")
		if len(connected) == 0 {
			why = "config.json does not name the target's lvstores, so the volume may be in one that is not loaded: add lvstores"
		}
		return []Finding{r.finding(LeakedExport, object, e.Volume, "it exports a volume that the target does not have. It is only reported, because "+why).byHand(byHand)}
	case !exists:
		return []Finding{r.finding(LeakedExport, object, e.Volume, "it exports a volume that does not exist").
			repairedBy("delete it", func(ctx context.Context) error { return r.removeExport(ctx, e.Volume) }).byHand(byHand)}
	case e.Open:
		return []Finding{r.finding(OpenExport, object, e.Volume, "every host is admitted, as SPDK's spdk-csi exports volumes. The driver closes it when it publishes the volume").
			byHand(r.call("nvmf_subsystem_allow_any_host nqn=%s allow_any_host=false", e.Name))}
	case len(e.Hosts) == 0 && len(connected) == 0 && fenced: // the next publication or unpublication repairs this state
	case len(e.Hosts) == 0 && len(connected) == 0:
		return []Finding{r.finding(HalfMade, object, e.Volume, "no host is admitted: publishing or unpublishing was interrupted. It is only reported, because a publication could be filling it while it is deleted. It harms nothing: the next publication uses it, and it is deleted with the volume").byHand(byHand)}
	case len(e.Hosts) > 0 && !e.Complete:
		return []Finding{r.finding(HalfMade, object, e.Volume, "a host is admitted, but it lacks its namespace or listener: publishing was interrupted, or the target lost a part of its configuration").
			byHand("kubectl delete pod POD (the one that uses the volume): Kubernetes publishes the volume again")}
	}
	return nil
}

// withdrawal returns the command that deletes an export.
func (r *Reading) withdrawal(e export.Found) string {
	if strings.HasPrefix(e.Name, export.IQN("")) {
		return r.call("iscsi_delete_target_node name=%s", e.Name)
	}
	return r.call("nvmf_delete_subsystem nqn=%s", e.Name)
}

// removeExport removes the export of a volume that no longer exists. It fails if the volume exists,
// or if a host is connected.
func (r *Reading) removeExport(ctx context.Context, id string) error {
	if _, err := r.target.Get(ctx, id); err == nil || !errors.Is(err, volume.ErrNotFound) {
		return errors.Join(fmt.Errorf("target %s: %w: volume %s may still exist: nothing was deleted", r.target.Name, volume.ErrInUse, id), err)
	}
	connected, err := r.target.Exports().Connected(ctx, id)
	if err != nil {
		return err
	}
	if len(connected) > 0 {
		return fmt.Errorf("target %s: %w: hosts are connected to volume %s: nothing was deleted", r.target.Name, volume.ErrInUse, id)
	}
	return r.target.Unexport(ctx, id, nil)
}

func (r *Reading) ofGroup(g export.Group) Finding {
	byHand := r.call("iscsi_delete_initiator_group tag=%d", g.Tag)
	if g.Claim {
		return r.finding(HalfMade, fmt.Sprintf("initiator group %d (%s)", g.Tag, g.Initiator), "",
			"a controller claims to be creating the portal group. If it died, the driver replaces its claim by itself after some minutes").with(anyCall).byHand(byHand)
	}
	return r.finding(LeakedGroup, fmt.Sprintf("initiator group %d", g.Tag), "", "no iSCSI target refers to the group of "+g.Initiator).with(anyCall).
		repairedBy("delete it", func(ctx context.Context) error { return r.target.Exports().RemoveUnusedGroup(ctx, g) }).byHand(byHand)
}

// provisioned matches the unique names that csi-provisioner gives to volumes.
var provisioned = regexp.MustCompile(`-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// duplicates finds volumes and snapshots that exist more than once.
func duplicates(all []*Reading) (found []Finding) {
	type place struct {
		r *Reading
		l volume.Listed
	}
	var keys []string
	places := map[string][]place{}
	for _, r := range all {
		for _, l := range r.lvols {
			if !r.target.Permits(l) {
				continue
			}
			var key string
			switch plain, _ := l.Used(); {
			case l.Kind == volume.KindVolume && provisioned.MatchString(plain):
				key = "volume " + plain
			case l.Kind == volume.KindVolume:
				key = "volume " + r.target.Name + ":" + l.Store + "/" + plain
			case l.Kind == volume.KindSnapshot && l.Requests != "":
				key = "snapshot " + r.target.Name + ":" + l.Requests
			default:
				continue
			}
			if places[key] == nil {
				keys = append(keys, key)
			}
			places[key] = append(places[key], place{r, l})
		}
	}
	for _, key := range keys {
		at := places[key]
		if len(at) < 2 {
			continue
		}
		var names []string
		var subjects []string
		for _, p := range at {
			names = append(names, p.r.target.Name+":"+p.l.Store+"/"+p.l.Name+" ("+p.l.UUID+")")
			subjects = append(subjects, p.l.UUID, p.l.Source)
		}
		slices.Sort(names)
		last := at[len(at)-1]
		found = append(found, last.r.finding(Duplicate, key, "", "it exists more than once: "+strings.Join(names, ", ")+". Find out which one is used before you delete another").
			with(subjects...).with(anyName).byHand(last.r.call("bdev_get_bdevs name=%s", last.l.UUID)))
	}
	return found
}
