package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// ofMove returns the finding about a volume or snapshot that spdk-csi move created, and false for
// any other object. all contains the readings of all targets, one of which may contain the
// original.
func (r *Reading) ofMove(l volume.Listed, all []*Reading, hosts func(string) export.Host) (Finding, bool) {
	name, _ := l.Used()
	is := func(nameOf func(string) string) (original string) {
		uuid, ok := strings.CutPrefix(name, nameOf(""))
		if id, err := request.ParseVolumeID(uuid); err == nil && ok && id.Target == "" && l.Kind == volume.KindVolume {
			return uuid
		}
		return ""
	}
	object := string(l.Kind) + " " + l.Store + "/" + l.Name
	if uuid := is(request.MoveCopyName); uuid != "" {
		original, exists := idOf(uuid, all)
		if !exists {
			return r.finding(Move, object, l.UUID, fmt.Sprintf("it is the copy that spdk-csi move made of volume %s, which no target has. The copy may be the only one that has the data. The list of volumes does not contain it", uuid)).
				with(namePrefix + l.Name).byHand("create the PersistentVolume of the copy (docs/moving.md). Only if no cluster needs the data: " + deletion(request.VolumeID{Target: r.target.Name, UUID: l.UUID})), true
		}
		giveUp := fmt.Sprintf("spdk-csi move --volume %s --keep-original", original)
		if e, ok := r.exportToMover(l.UUID, uuid, hosts); ok {
			giveUp += "; then " + r.withdrawal(e)
		}
		return r.finding(Move, object, l.UUID, fmt.Sprintf("it is the copy that spdk-csi move made of volume %s, and the list of volumes does not contain it: the move or its --prepare is not finished, or nothing uses the copy yet", original)).
			with(namePrefix + l.Name).byHand(fmt.Sprintf("to finish the move, repeat the spdk-csi move command, which continues (docs/moving.md). To give it up, if no cluster uses the copy (kubectl get pv -o yaml | grep %s): %s; then %s", l.UUID, giveUp, deletion(request.VolumeID{Target: r.target.Name, UUID: l.UUID}))), true
	}
	source, what := is(request.MoveSourceName), "the temporary volume through which spdk-csi move --prepare reads a snapshot"
	if l.Kind == volume.KindSnapshot && l.RequestedAs(request.MoveBaseName(l.Source)) {
		source, what = l.Source, "the snapshot that spdk-csi move --prepare took"
	}
	if source == "" {
		return Finding{}, false
	}
	original, exists := idOf(source, all)
	if !exists {
		return r.finding(Move, object, l.UUID, fmt.Sprintf("it is %s of volume %s, which no target has: the move has replaced the volume, or the volume was deleted", what, source)).
			with(l.Source, anyName).byHand(r.call("spdkgate_lvol_delete name=%s", l.UUID)), true
	}
	return r.finding(Move, object, l.UUID, fmt.Sprintf("it is %s of volume %s. It is needed until that volume has been moved, and takes space", what, original)).
		with(l.Source, anyName).byHand(fmt.Sprintf("to finish the move, repeat the spdk-csi move command, which continues (docs/moving.md). To give it up: spdk-csi move --volume %s --keep-original", original)), true
}

// exportToMover returns the export of a copy if the export admits only hosts of spdk-csi move. Such
// an export prevents the deletion of the copy.
func (r *Reading) exportToMover(copied, original string, hosts func(string) export.Host) (export.Found, bool) {
	var movers []string
	for _, node := range []string{hostname.MoveNode(original, copied), request.MovePrepareNode(original)} {
		h := hosts(node)
		movers = append(movers, h.NQN, h.Multipath, h.IQN)
	}
	for _, e := range r.exports {
		if e.Volume == copied && !e.Open && !slices.ContainsFunc(e.Hosts, func(h string) bool { return !slices.Contains(movers, h) }) {
			return e, true
		}
	}
	return export.Found{}, false
}

// idOf returns the id of the volume with the given UUID, and false if no target has it.
func idOf(uuid string, all []*Reading) (request.VolumeID, bool) {
	for _, r := range all {
		if l, ok := r.byID[uuid]; ok && l.Kind == volume.KindVolume && !l.Nested {
			return request.VolumeID{Target: r.target.Name, UUID: uuid}, true
		}
	}
	return request.VolumeID{}, false
}
