package target

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// While one of a user's calls is in flight, the user's further calls use the same connection. Other
// users get the least loaded connection.
func TestCallsOfAUserShareAConnection(t *testing.T) {
	open := func(load int, of map[string]int) *Conn {
		return &Conn{gone: make(chan struct{}), load: load, loadOf: of}
	}
	busy, idle := open(3, map[string]int{"a": 1, "b": 2}), open(1, map[string]int{"c": 1})
	for _, conns := range [][]*Conn{{busy, idle}, {idle, busy}} {
		target := newTarget(t, Config{Connections: 2})
		target.conns = conns
		for user, want := range map[string]*Conn{"a": busy, "b": busy, "c": idle, "d": idle} {
			assert.Same(t, want, target.pick(user), user)
		}
		target.conns = nil
		assert.Nil(t, target.pick("a"))
	}
}
