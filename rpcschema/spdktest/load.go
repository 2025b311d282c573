package spdktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// loadConfig makes the calls in a saved configuration, as spdk_tgt -c does before it listens. If a
// call fails, the start fails, unless IgnoreInitErrors is set. A missing file is treated as if no
// file were configured.
func (t *Target) loadConfig(e *engine) error {
	text, err := os.ReadFile(t.opts.ConfigFile)
	if t.opts.ConfigFile == "" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load the configuration: %w", err)
	}
	var file struct {
		Subsystems []struct {
			Subsystem string            `json:"subsystem"`
			Config    []json.RawMessage `json:"config"`
		} `json:"subsystems"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("load the configuration: %w", err)
	}
	for _, s := range file.Subsystems {
		for _, call := range s.Config {
			if err := t.loadCall(e, s.Subsystem, call); err != nil && !t.opts.IgnoreInitErrors {
				return fmt.Errorf("load the configuration of %s: %w", s.Subsystem, err)
			}
		}
	}
	return nil
}

func (t *Target) loadCall(e *engine, subsystem string, text json.RawMessage) error {
	value, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	if err != nil {
		return err
	}
	call, _ := value.(map[string]any)
	name, _ := call["method"].(string)
	m, ok := t.methods.find(name)
	if !ok {
		if e.isAtStart(subsystem, text) {
			return nil
		}
		return fmt.Errorf("method %q is not simulated, or not with this value", name)
	}
	if slices.Contains(m.State, "startup") && name != "bdev_set_options" {
		return nil // other calls to this method have no effect here
	}
	params, ok := m.decode(call["params"])
	if !ok {
		return fmt.Errorf("%s: %s", name, decodeTexts[m.decodeError])
	}
	if _, err := m.run(e, params); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// isAtStart reports whether a call merely repeats a part of the default configuration.
func (e *engine) isAtStart(subsystem string, text json.RawMessage) bool {
	same := func(c configCall) bool {
		fitted, ok := e.fit(c)
		if !ok {
			return false
		}
		theirs, err := jsonrpc.Marshal(fitted)
		return err == nil && bytes.Equal(canonical(theirs), canonical(text))
	}
	return slices.ContainsFunc(startup[subsystem], same)
}

// canonical returns a JSON text with its members in a fixed order.
func canonical(text []byte) []byte {
	var v any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return text
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return sorted
}
