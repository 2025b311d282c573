package decide

import (
	"math"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// checkNewNames returns an error if the name of a new object contains terminal control characters,
// characters that change the direction of text, or invisible characters. SPDK accepts all of these.
// Names of existing objects may contain any character, so that such objects can be renamed and
// deleted.
func checkNewNames(schema *rpcschema.Document, method string, params map[string]any) error {
	names, _ := schema.Names(method, params, math.MaxInt)
	for _, n := range names {
		if isNewName(n.Kind) && !printable.ValidName(n.Value) {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "the name %+q of a new object has invisible characters, blanks at an end, control characters or characters that change the direction of text. Nothing was executed; choose another name.", n.Value)
		}
	}
	return nil
}

// isNewName reports whether a kind of resource is a name that a call assigns to an object.
func isNewName(kind string) bool { return strings.HasPrefix(kind, "new-") || kind == "lvol-name" }
