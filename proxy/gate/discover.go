package gate

import (
	"context"
	"encoding/json"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Discover serves rpc.discover. It returns an OpenRPC document that describes the methods that the
// user may call, as they are in the target's release.
func (g *Gate) Discover(_ context.Context, r *Request) (any, error) {
	return g.document(r.Settings, r.User, r.Conn.Release())
}

func (g *Gate) document(current *Settings, user string, release rpcschema.Release) (json.RawMessage, error) {
	key := documentKey{user, release}
	if text, ok := current.documents.get(key); ok {
		return text, nil
	}
	text, err := g.Schema.Export(release, func(m *rpcschema.Method) bool {
		return g.Offers(m.Name) && !current.Policy.Decide(user, m.Name).Refused() && current.Tenancy.Of(user).MayCall(m.Name)
	})
	if err != nil {
		return nil, err
	}
	current.documents.put(key, text)
	return text, nil
}
