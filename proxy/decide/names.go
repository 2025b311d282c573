package decide

import (
	"math"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// checkNewNames refuses names of new objects with characters that control terminals or change the
// order of text. SPDK accepts them. Names of existing objects may have any characters, so that
// these can be renamed and deleted.
func checkNewNames(schema *rpcschema.Document, method string, params map[string]any) error {
	names, _ := schema.Names(method, params, math.MaxInt)
	for _, n := range names {
		if isNewName(n.Kind) && !printable.Valid(n.Value) {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the name %s of a new object has control characters or characters that change the direction of text. Nothing was executed; choose another name.", printable.String(n.Value))
		}
	}
	return nil
}

// isNewName reports whether a kind of resource is the name that a call gives to an object.
func isNewName(kind string) bool { return strings.HasPrefix(kind, "new-") || kind == "lvol-name" }
