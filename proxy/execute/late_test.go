package execute

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A call to which SPDK responds too late causes a save only if it may have changed the
// configuration, and only if the proxy saves configurations at all.
func TestLateConfigurationChangesAreSaved(t *testing.T) {
	refused := &spdkrpc.Error{Kind: spdkrpc.NoSuchDevice}
	for name, c := range map[string]struct {
		method string
		err    error
		saves  bool // whether the proxy saves the configuration
		want   bool
	}{
		"a change":                         {"bdev_malloc_create", nil, true, true},
		"a change with an unknown outcome": {"bdev_malloc_create", spdkrpc.OutcomeUnknown, true, true},
		"a refused change":                 {"bdev_malloc_create", refused, true, false},
		"a failed change":                  {"bdev_malloc_create", errors.New("broken"), true, false},
		"a query":                          {"bdev_get_bdevs", nil, true, false},
		"an unknown method":                {"no_such_method", nil, true, false},
		"a change, without saving":         {"bdev_malloc_create", nil, false, false},
		"a change with an unknown outcome, but the proxy does not save": {"bdev_malloc_create", spdkrpc.OutcomeUnknown, false, false},
	} {
		noted, executed := false, false
		e := &Executor{restart: &restart{}, Options: Options{
			Schema:   rpcschema.Default(),
			Executed: func(*rpcschema.Method) { executed = true },
			Contain:  func(string, func()) { noted = true },
		}}
		if c.saves {
			e.restart.saver = &persist.Saver{}
		}
		e.NoteLate(c.method, nil, c.err)
		assert.Equal(t, c.want, noted, name)
		assert.Equal(t, c.method != "no_such_method", executed, name)
	}
}
