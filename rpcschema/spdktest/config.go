package spdktest

import (
	_ "embed"
	"encoding/json"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A configCall is one of the calls that recreate the target's current state.
type configCall struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

// A configPart is a list of consecutive calls in the configuration. If together is set, the release
// may report them as a batch.
type configPart struct {
	calls    []configCall
	together bool
}

func oneByOne(calls ...configCall) configPart { return configPart{calls: calls} }
func together(calls ...configCall) configPart { return configPart{calls: calls, together: true} }

// startup is the default configuration of every target, for all releases. No simulated call changes
// it.
var startup = func() (bySubsystem map[string][]configCall) {
	if err := json.Unmarshal(startupText, &bySubsystem); err != nil {
		panic(err)
	}
	return bySubsystem
}()

//go:embed startup.json
var startupText []byte

// A subsystemInfo describes a subsystem of spdk_tgt. Its function returns the subsystem's
// configuration. The function is nil if the subsystem has no configuration.
type subsystemInfo struct {
	spdkrpc.FrameworkSubsystem
	config func(*engine) []configPart
}

// subsystems lists the simulated subsystems in start order.
func (e *engine) subsystems() []subsystemInfo {
	list := []subsystemInfo{
		{spdkrpc.FrameworkSubsystem{Subsystem: "scheduler", DependsOn: []string{}}, func(*engine) []configPart { return []configPart{oneByOne(startup["scheduler"]...)} }},
		{spdkrpc.FrameworkSubsystem{Subsystem: "keyring", DependsOn: []string{}}, (*engine).keyringConfig},
		{spdkrpc.FrameworkSubsystem{Subsystem: "accel", DependsOn: []string{}}, (*engine).accelConfig},
		{spdkrpc.FrameworkSubsystem{Subsystem: "bdev", DependsOn: []string{"accel", "keyring"}}, (*engine).bdevConfig},
		{spdkrpc.FrameworkSubsystem{Subsystem: "scsi", DependsOn: []string{"bdev"}}, nil},
		{spdkrpc.FrameworkSubsystem{Subsystem: "nvmf", DependsOn: []string{"bdev", "keyring"}}, (*engine).nvmfConfig},
		{spdkrpc.FrameworkSubsystem{Subsystem: "iscsi", DependsOn: []string{"scsi"}}, (*engine).iscsiConfig},
	}
	if e.before("v24.05") { // earlier releases have no keyring subsystem
		isKeyring := func(name string) bool { return name == "keyring" }
		list = slices.DeleteFunc(list, func(s subsystemInfo) bool { return isKeyring(s.Subsystem) })
		for i := range list {
			list[i].DependsOn = slices.DeleteFunc(list[i].DependsOn, isKeyring)
		}
	}
	return list
}

func init() {
	query("framework_get_subsystems", func(e *engine) (list []spdkrpc.FrameworkSubsystem, _ error) {
		for _, s := range e.subsystems() {
			list = append(list, s.FrameworkSubsystem)
		}
		return list, nil
	})
	handle("framework_get_config", (*engine).frameworkGetConfig)
}

// frameworkGetConfig returns nil, which becomes null, for a subsystem without a configuration.
func (e *engine) frameworkGetConfig(p spdkrpc.FrameworkGetConfigParams) (entries []any, _ error) {
	subsystems := e.subsystems()
	i := slices.IndexFunc(subsystems, func(s subsystemInfo) bool { return s.Subsystem == p.Name })
	if i < 0 {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Subsystem '%s' not found", p.Name)
	}
	if subsystems[i].config == nil {
		return nil, nil
	}
	entries = []any{}
	for _, part := range subsystems[i].config(e) {
		calls := []configCall{}
		for _, c := range part.calls {
			if fitted, ok := e.fit(c); ok {
				calls = append(calls, fitted)
			}
		}
		if part.together && value(p.WithBatches) {
			entries = append(entries, calls)
			continue
		}
		for _, c := range calls {
			entries = append(entries, c)
		}
	}
	return entries, nil
}

// fit removes from a call the parameters that the release does not support.
func (e *engine) fit(c configCall) (configCall, bool) {
	doc := rpcschema.Default()
	m, err := doc.Find(c.Method, e.release)
	if err != nil || c.Params == nil {
		return c, err == nil
	}
	params, err := members(c.Params)
	for name, v := range params {
		if p := m.Param(name); p == nil || !p.Schema.Has(e.release) {
			delete(params, name)
		} else if err == nil {
			params[name], err = newTrimmer(doc, p.Schema, e.release).trim(v)
		}
	}
	if err != nil {
		panic(err) // cannot happen, because the values come from the engine itself
	}
	c.Params = params
	return c, true
}

// members converts a parameter struct to a JSON object.
func members(v any) (list map[string]json.RawMessage, err error) {
	text, err := jsonrpc.Marshal(v)
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(text, &list)
}

func (e *engine) keyringConfig() []configPart {
	var part configPart
	for _, k := range e.keys {
		if !k.removed {
			part.calls = append(part.calls, configCall{"keyring_file_add_key", spdkrpc.KeyringFileAddKeyParams{Name: k.name, Path: k.path}})
		}
	}
	return []configPart{part}
}

// accelConfig writes keys in plain text, as SPDK does.
func (e *engine) accelConfig() []configPart {
	part := oneByOne(startup["accel"]...)
	for _, k := range e.cryptoKeys {
		part.calls = append(part.calls, configCall{"accel_crypto_key_create", e.shownKey(k)})
	}
	return []configPart{part}
}

// bdevConfig lists stacked bdevs before their base bdevs, because SPDK waits for the base bdevs. It
// does not list volumes, because SPDK finds them in their lvstores.
func (e *engine) bdevConfig() []configPart {
	options := startup["bdev"]
	setOptions := maps.Clone(options[0].Params.(map[string]any))
	setOptions["bdev_auto_examine"] = !e.examineListed
	var listed []configCall
	for _, name := range e.toExamine {
		listed = append(listed, configCall{"bdev_examine", spdkrpc.BdevExamineParams{Name: name}})
	}
	var mallocs, nulls, aios, stacks, settings []configCall
	for _, b := range e.bdevs.all {
		switch d := b.driver.(type) {
		case *malloc:
			mallocs = append(mallocs, configCall{"bdev_malloc_create", d.config(e, b)})
		case *null:
			nulls = append(nulls, configCall{"bdev_null_create", d.config(b)})
		case *aio:
			aios = append(aios, configCall{"bdev_aio_create", d.config(b)})
		case *stacked:
			stacks = append(stacks, d.config(b))
		}
		if b.limits != (spdkrpc.BdevRateLimits{}) {
			settings = append(settings, configCall{"bdev_set_qos_limit", limitParams(b)})
		}
		if b.histogram.enabled {
			settings = append(settings, b.histogramConfig())
		}
	}
	return []configPart{
		oneByOne(configCall{options[0].Method, setOptions}), oneByOne(listed...), oneByOne(options[1]), together(mallocs...), together(nulls...), oneByOne(stacks...), oneByOne(options[2]), together(), oneByOne(options[3:]...),
		oneByOne(aios...), oneByOne(settings...), oneByOne(configCall{Method: "bdev_wait_for_examine"}),
	}
}
