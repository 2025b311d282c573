package initiators

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExportsResolvesInitiatorGroups(t *testing.T) {
	group := json.RawMessage(`{"method":"iscsi_create_initiator_group","params":{"tag":1,"initiators":["iqn.a","iqn.b"],"netmasks":["ANY"]}}`)
	other := json.RawMessage(`{"method":"iscsi_create_initiator_group","params":{"tag":2,"initiators":["ANY"],"netmasks":["ANY"]}}`)
	node := json.RawMessage(`{"method":"iscsi_create_target_node","params":{"name":"iqn.v","pg_ig_maps":[{"pg_tag":1,"ig_tag":1},{"pg_tag":2,"ig_tag":1},{"pg_tag":1,"ig_tag":2}]}}`)
	unrelated := json.RawMessage(`{"method":"iscsi_set_options","params":{"tag":1}}`)
	broken := json.RawMessage(`{`)
	same := func(text json.RawMessage) json.RawMessage { return text }
	assert.Equal(t, []Export{
		{Method: createTargetNode, IQN: "iqn.v", Initiators: []string{"iqn.a", "iqn.b", "ANY"}},
		{Method: createInitiatorGroup, Tag: 2, Initiators: []string{"ANY"}},
	}, Exports([]json.RawMessage{unrelated, node, broken, other}, []json.RawMessage{broken, unrelated, group, other, node}, same))
	assert.Equal(t, []Export{{Method: createTargetNode, IQN: "iqn.v"}}, Exports([]json.RawMessage{node}, nil, same))
}
