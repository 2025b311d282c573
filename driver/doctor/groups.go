package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/volume"
)

// A groupMember is a snapshot in a group, and its target.
type groupMember struct {
	*Reading
	volume.Listed
}

// halfMadeGroups finds group snapshots with missing members. A group with members on several
// targets is reported only if all of these targets were read.
func halfMadeGroups(all []*Reading, partial bool) (found []Finding) {
	members := map[volume.GroupID][]groupMember{}
	for _, r := range all {
		partial = partial || r.err != nil
		if r.err != nil {
			continue
		}
		for _, l := range r.lvols {
			if l.Group != (volume.GroupID{}) && r.target.Permits(l) {
				members[l.Group] = append(members[l.Group], groupMember{r, l})
			}
		}
	}
	for id, present := range members {
		if len(present) >= id.Size() || id.Several() && partial {
			continue
		}
		subjects := []string{groupPrefix + id.Hash}
		var commands []string
		for _, m := range present {
			subjects = append(subjects, m.UUID, m.Source)
			commands = append(commands, m.call("spdkgate_lvol_delete name=%s", m.UUID))
		}
		slices.Sort(commands)
		found = append(found, present[0].finding(HalfMade, "group snapshot "+id.String(), "", fmt.Sprintf("only %d of its %d snapshots exist, because taking or deleting the group was interrupted. The driver deletes them when the request is repeated", len(present), id.Size())).
			with(subjects...).byHand(strings.Join(commands, "; ")))
	}
	return found
}
