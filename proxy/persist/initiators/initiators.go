// Package initiators determines which iSCSI initiators the calls in a saved configuration admit.
//
// The package must not depend on how calls are saved, or on which of them the target lacks.
package initiators

import "encoding/json"

// SPDK saves iSCSI exports as calls of these methods.
const (
	createTargetNode     = "iscsi_create_target_node"
	createInitiatorGroup = "iscsi_create_initiator_group"
)

// An Export describes a saved iSCSI target node or initiator group.
type Export struct {
	Method     string
	IQN        string   // IQN of the target node
	Tag        int32    // tag of the initiator group
	Initiators []string // the initiators in the group, or those that may log in to the target node
}

type call struct {
	Method string `json:"method"`
	Params struct {
		Name       string   `json:"name"`
		Tag        int32    `json:"tag"`
		Initiators []string `json:"initiators"`
		Maps       []struct {
			Group int32 `json:"ig_tag"`
		} `json:"pg_ig_maps"`
	} `json:"params"`
}

// Exports describes the target nodes and initiator groups created by calls. all contains the calls
// of the whole configuration, including those that create the target nodes' initiator groups. text
// returns the JSON text of a call.
func Exports[T any](calls, all []T, text func(T) json.RawMessage) (list []Export) {
	var groups map[int32][]string
	for _, x := range calls {
		var c call
		if json.Unmarshal(text(x), &c) != nil || c.Method != createTargetNode && c.Method != createInitiatorGroup {
			continue
		}
		e := Export{Method: c.Method, IQN: c.Params.Name, Tag: c.Params.Tag, Initiators: c.Params.Initiators}
		if c.Method == createTargetNode && groups == nil {
			groups = groupsIn(all, text)
		}
		listed := map[int32]bool{}
		for _, m := range c.Params.Maps { // one for each portal group
			if !listed[m.Group] {
				listed[m.Group] = true
				e.Initiators = append(e.Initiators, groups[m.Group]...)
			}
		}
		list = append(list, e)
	}
	return list
}

// groupsIn returns the initiators in each initiator group that these calls create, by tag.
func groupsIn[T any](calls []T, text func(T) json.RawMessage) map[int32][]string {
	groups := map[int32][]string{}
	for _, x := range calls {
		var c call
		if json.Unmarshal(text(x), &c) == nil && c.Method == createInitiatorGroup {
			groups[c.Params.Tag] = append(groups[c.Params.Tag], c.Params.Initiators...)
		}
	}
	return groups
}
