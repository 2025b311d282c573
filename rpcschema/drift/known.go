package drift

import (
	"bytes"
	_ "embed"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

//go:embed known.yaml
var knownText []byte

// An explanation states why a difference from SPDK's schema file is correct.
type explanation struct {
	Method string `yaml:"method"`
	Param  string `yaml:"param"`
	Kind   Kind   `yaml:"kind"`
	// Since and Until limit the explanation to some releases. If both are empty, it applies to all
	// releases.
	Since rpcschema.Release `yaml:"since"`
	Until rpcschema.Release `yaml:"until"`
	Why   string            `yaml:"why"`
	Shown string            `yaml:"shown"` // file and function in SPDK that prove the explanation
}

func (e explanation) covers(d Difference, r rpcschema.Release) bool {
	return e.Method == d.Method && e.Param == d.Param && e.Kind == d.Kind && e.in(r)
}

func (e explanation) in(r rpcschema.Release) bool {
	return rpcschema.Window{Since: e.Since, Until: e.Until}.Has(r)
}

// known returns the embedded explanations. It panics if they are invalid, but the package's tests
// ensure that they are valid.
var known = sync.OnceValue(func() []explanation {
	list, err := readKnown(knownText)
	if err != nil {
		panic(err)
	}
	return list
})

func readKnown(text []byte) ([]explanation, error) {
	var list []explanation
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("known.yaml: %w", err)
	}
	for i, e := range list {
		if e.Method == "" || e.Kind == "" || e.Why == "" || e.Shown == "" {
			return nil, fmt.Errorf("known.yaml: entry %d (%s %s): specify method, kind, why and shown", i+1, e.Method, e.Param)
		}
	}
	return list, nil
}

// explain adds the known reasons to the differences. It also reports reasons that explain no
// difference in this release.
func explain(found []Difference, reasons []explanation, r rpcschema.Release) []Difference {
	var stale []Difference
	for _, e := range reasons {
		if !e.in(r) {
			continue
		}
		used := false
		for i, d := range found {
			if e.covers(d, r) {
				found[i].Why = e.Why + "; see " + e.Shown
				used = true
			}
		}
		if !used {
			stale = append(stale, Difference{Method: e.Method, Param: e.Param, Kind: Stale,
				Detail: fmt.Sprintf("known.yaml explains %q, which is not there: take it out, or bound its releases", e.Kind)})
		}
	}
	return append(found, stale...)
}
