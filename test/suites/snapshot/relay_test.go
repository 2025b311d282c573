package snapshot

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A relay forwards the proxy's calls to the target's socket. A hook can run before each call and
// after each response, and can drop them.
type relay struct {
	path   string
	target string
	mu     sync.Mutex
	hook   func(moment, method string, params json.RawMessage) (lost bool) // may be nil
}

// The moments of a call.
const (
	before = "before" // before the target receives the call
	after  = "after"  // after the target's response, before the proxy gets it
)

func startRelay(t *testing.T, path, target string) *relay {
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	r := &relay{path: path, target: target}
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go r.serve(c)
			}
		}
	}()
	return r
}

// watch sets the hook, which is called at both moments of each call, but never concurrently. If the
// hook returns true, the call or its response is dropped and the connection is closed.
func (r *relay) watch(hook func(moment, method string, params json.RawMessage) (lost bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

func (r *relay) at(moment string, c call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hook != nil && r.hook(moment, c.Method, c.Params) {
		return errors.New("lost")
	}
	return nil
}

type call struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (r *relay) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	target, err := net.Dial("unix", r.target)
	if err != nil {
		return
	}
	defer func() { _ = target.Close() }()
	var mu sync.Mutex
	calls := map[string]call{}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = each(target, func(answer json.RawMessage) error {
			var a call
			if err := json.Unmarshal(answer, &a); err != nil {
				return err
			}
			mu.Lock()
			c := calls[string(a.ID)]
			delete(calls, string(a.ID))
			mu.Unlock()
			if err := r.at(after, c); err != nil {
				return err
			}
			_, err := client.Write(answer)
			return err
		})
		_ = client.Close()
	}()
	_ = each(client, func(text json.RawMessage) error {
		var c call
		if err := json.Unmarshal(text, &c); err != nil {
			return err
		}
		mu.Lock()
		calls[string(c.ID)] = c
		mu.Unlock()
		if err := r.at(before, c); err != nil {
			return err
		}
		_, err := target.Write(text)
		return err
	})
	_ = target.Close()
	<-answered
}

// each calls the function do for each JSON value in a stream.
func each(r io.Reader, do func(json.RawMessage) error) error {
	for d := json.NewDecoder(r); ; {
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return err
		}
		if err := do(v); err != nil {
			return err
		}
	}
}
