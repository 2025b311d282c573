package heal

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
)

var setA, setB, both = replica.SetOf(0), replica.SetOf(1), replica.SetOf(0, 1)

func TestNextStepDependsOnObservation(t *testing.T) {
	pair, single, rebuild := mirror.Status{Members: both}, mirror.Status{Members: setA, Missing: setB}, mirror.Status{Members: setA, Rebuilding: setB}
	failing := func(s mirror.Status, failed replica.Set) mirror.Status { s.Failed = failed; return s }
	for name, c := range map[string]struct {
		o    observation
		what step
		id   replica.ID
	}{
		"complete":                              {observation{Status: pair, live: both}, nothing, 0},
		"B is away for a moment":                {observation{Status: pair, live: setA}, nothing, 0},
		"B is lost":                             {observation{Status: pair, live: setA, lost: setB}, drop, 1},
		"A is lost":                             {observation{Status: pair, live: setB, lost: setA}, drop, 0},
		"both are lost":                         {observation{Status: pair, lost: both}, nothing, 0},
		"both are lost, B is not connected":     {observation{Status: pair, lost: both, disconnected: setB}, reconnect, 1},
		"B is lost, A is away":                  {observation{Status: pair, lost: setB}, nothing, 0},
		"B is lost and failed":                  {observation{Status: failing(pair, setB), live: setA, lost: setB}, drop, 1},
		"B failed":                              {observation{Status: failing(pair, setB), live: both}, retry, 0},
		"B failed again":                        {observation{Status: failing(pair, setB), live: both, retried: true}, drop, 1},
		"B failed and is away":                  {observation{Status: failing(pair, setB), live: setA, retried: true}, nothing, 0},
		"both failed":                           {observation{Status: failing(pair, both), live: both}, retry, 0},
		"both failed again":                     {observation{Status: failing(pair, both), live: both, retried: true}, nothing, 0},
		"single, A failed":                      {observation{Status: failing(single, setA), live: setA}, retry, 0},
		"single, A failed again":                {observation{Status: failing(single, setA), live: both, retried: true}, nothing, 0},
		"single, A is lost":                     {observation{Status: single, live: setB, lost: setA}, nothing, 0},
		"single, B is away":                     {observation{Status: single, live: setA, lost: setB}, reconnect, 1},
		"single, B is back":                     {observation{Status: single, live: both}, add, 1},
		"rebuild":                               {observation{Status: rebuild, live: both}, complete, 1},
		"rebuild, B is lost":                    {observation{Status: rebuild, live: setA, lost: setB}, drop, 1},
		"rebuild, B failed again":               {observation{Status: failing(rebuild, setB), live: both, retried: true}, drop, 1},
		"rebuild, its source is lost":           {observation{Status: rebuild, live: setB, lost: setA}, nothing, 0},
		"rebuild, its source failed again":      {observation{Status: failing(rebuild, setA), live: both, retried: true}, nothing, 0},
		"rebuild, its source failed":            {observation{Status: failing(rebuild, setA), live: both}, retry, 0},
		"the log failed":                        {observation{Status: mirror.Status{Members: setA, Rebuilding: setB, LogFailed: true}, live: both}, retry, 0},
		"the log failed again":                  {observation{Status: mirror.Status{Members: setA, Rebuilding: setB, LogFailed: true}, live: both, retried: true}, nothing, 0},
		"nothing is dropped without a live leg": {observation{Status: failing(pair, setB), live: 0, retried: true}, nothing, 0},
	} {
		t.Run(name, func(t *testing.T) {
			what, id := next(c.o)
			assert.Equal(t, c.what, what)
			assert.Equal(t, c.id, id)
		})
	}
}

// Whatever the observation, a replica is dropped only if another current replica is live.
func TestLastLiveReplicaIsNeverDropped(t *testing.T) {
	sets := []replica.Set{0, setA, setB, both}
	for _, s := range []mirror.Status{{Members: both}, {Members: setA, Missing: setB}, {Members: setB, Missing: setA}, {Members: setA, Rebuilding: setB}, {Members: setB, Rebuilding: setA}} {
		for _, live := range sets {
			for _, lost := range sets {
				for _, failed := range sets {
					for _, retried := range []bool{false, true} {
						o := observation{Status: s, live: live, lost: lost &^ live, retried: retried}
						o.Failed = failed
						what, id := next(o)
						if what == drop {
							rest := s.Members &^ replica.SetOf(id)
							assert.NotZero(t, rest&live, "%+v", o)
						}
						if what == add {
							assert.True(t, s.Missing.Has(id) && live.Has(id), "%+v", o)
						}
					}
				}
			}
		}
	}
}
