package drift

import (
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Live compares the methods that a target of release r lists (rpc_get_methods) with the schema. A
// method that the target does not list counts as a known difference. Either the target was built
// without the method, or the method cannot be called in the target's current state.
func Live(doc *rpcschema.Document, names []string, r rpcschema.Release) *Report {
	report := &Report{Subject: "live target", Release: r, Compared: len(names)}
	listed := map[string]bool{}
	for _, name := range names {
		m, err := doc.Find(name, r)
		switch {
		case err != nil:
			report.Differences = append(report.Differences, Difference{Method: name, Kind: Missing, Detail: err.Error()})
			continue
		case m.Name != name:
			report.Differences = append(report.Differences, Difference{Method: name, Kind: Renamed,
				Detail: "it is called " + m.Name + " now", Why: "the schema has it as a deprecated name"})
		}
		listed[m.Name] = true
	}
	for _, m := range doc.OfSPDK() {
		if m.Has(r) && !listed[m.Name] {
			report.Differences = append(report.Differences, Difference{Method: m.Name, Kind: Extra,
				Detail: fmt.Sprintf("the target does not list it (state %s)", states(m)), Why: "not built in, or not callable in the target's present state"})
		}
	}
	return report
}

func states(m *rpcschema.Method) string {
	if len(m.State) == 1 {
		return m.State[0] + " only"
	}
	return "any"
}
