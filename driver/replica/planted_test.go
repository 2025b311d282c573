package replica

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// changed returns Decide with one row changed.
func changed(row func(w Witness, v View, d Decision) Decision) func(Writer, Witness, bool, View) Decision {
	return func(self Writer, w Witness, known bool, v View) Decision {
		return row(w, v, Decide(self, w, known, v))
	}
}

// ours returns the replicas that are Ours and are not being rebuilt, regardless of the witness.
func ours(w Witness, v View) Set {
	return v.where(w.Replicas, func(s Seen) bool { return s.State == Ours && s.Superblock.Rebuild == NoRebuild })
}

// ignoreEpochs decides as if all superblocks had the same epoch.
func ignoreEpochs(self Writer, w Witness, known bool, v View) Decision {
	for id := range v {
		if v[id].State == Ours {
			v[id].Superblock.Epoch = w.Epoch
		}
	}
	return Decide(self, w, known, v)
}

// stoppedWorld returns the state of a volume that node1 has stopped cleanly.
func stoppedWorld(inSync, lacking Set, superblocks ...Superblock) world {
	s := runningWorld()
	s.Nodes[0] = nodeState{Generation: 1}
	s.W.InSync, s.W.Clean = inSync, true
	for id, b := range superblocks {
		b.Epoch = 1
		s.Replicas[id].Seen = Seen{State: Ours, Superblock: b}
		s.Replicas[id].Lacks, s.Replicas[id].Bit = lacking.Has(ID(id)), lacking != 0
	}
	return s
}

// degradedWorld returns the state of a volume that node1 uses without replica B, whose server is
// available again.
func degradedWorld() world {
	s := runningWorld()
	s.W.InSync, s.W.Held, s.W.Logged = setA, setA, setB
	s.Nodes[0].Known, s.Nodes[0].Members, s.Nodes[0].Core, s.Nodes[0].Bit = setA, setA, false, true
	s.Replicas[0].Seen.Superblock.InSync, s.Replicas[0].Bit, s.Replicas[0].Content = setA, true, 1
	s.Replicas[1].Lacks = true
	return s
}

// abandonedWorld returns the state of a degraded volume whose node has lost power, and whose
// current replica A is on a lost server.
func abandonedWorld() world {
	s := degradedWorld()
	s.Nodes[0] = nodeState{Off: true, Link: setA}
	s.Nodes[1].Link, s.Replicas[0].Cut = setA, true
	return s
}

const (
	startLacking   = "an array starts with a replica that lacks an acknowledged write"
	listsLacking   = "the witness lists a replica that lacks an acknowledged write"
	startDiffering = "an array starts with members that differ"
	rebuiltDiffers = "a rebuilt replica differs"
	rebuiltLacking = "a rebuilt replica lacks an acknowledged write"
	writesAfter    = "a node writes to a replica that a later publication has used"
	cannotStart    = "the volume does not start although the witness and an in-sync replica are reachable"
	neverRebuilt   = "a discarded replica is never rebuilt"
	cannotCreate   = "the volume cannot be created although all replicas are reachable"
)

type planted struct {
	name    string
	initial world
	model   stepper
	plant   func(r *rules)
	finds   string
}

var setA, setB, setAB = SetOf(0), SetOf(1), SetOf(0, 1)

// plantedDecisions contains mistakes in the decision for staging, one for each row of the table in
// docs/design/replication.md.
func plantedDecisions() []planted {
	return []planted{
		{"witness unreachable: starts what was listed before", runningWorld(), stepper{faults: 3, only: []kind{serverLost, apiLost}}, func(r *rules) {
			r.startEarly = true
			r.decide = func(self Writer, w Witness, _ bool, v View) Decision { return Decide(self, w, true, v) }
		}, listsLacking},
		{"another publication: starts", runningWorld(), stepper{faults: 2, only: []kind{published, linkLost}}, func(r *rules) {
			r.decide = func(_ Writer, w Witness, known bool, v View) Decision { return Decide(w.Writer, w, known, v) }
			r.start = func(w Witness, _ Writer, inSync, logged Set) (Witness, error) {
				return w.Start(w.Writer, inSync, logged)
			}
			r.setInSync = func(w Witness, _ Writer, inSync Set) (Witness, error) {
				w.Held |= inSync
				return w.SetInSync(w.Writer, inSync)
			}
		}, listsLacking},
		{"not created, one superblock: refuses", initialWorld(), stepper{faults: 1}, func(r *rules) {
			r.decide = changed(func(w Witness, v View, d Decision) Decision {
				if d.Action == Create && v[0].State != v[1].State {
					return Decision{Action: Refuse, Reason: ReplicaNotOurs}
				}
				return d
			})
		}, cannotCreate},
		{"not created, one replica unreachable: creates", initialWorld(), stepper{faults: 2}, func(r *rules) {
			r.decide = changed(func(w Witness, _ View, d Decision) Decision {
				if !w.Created && d.Reason == ReplicaMissing {
					return Decision{Action: Create, InSync: w.Replicas}
				}
				return d
			})
		}, cannotStart},
		{"one listed, both look equal: starts both", runningWorld(), stepper{faults: 3, only: []kind{serverLost, powerLost}}, func(r *rules) {
			r.decide = changed(func(w Witness, v View, d Decision) Decision {
				if both := ours(w, v); d.Action == Start && both.Len() == 2 && v[0].Superblock.InSync == v[1].Superblock.InSync {
					return Decision{Action: Start, InSync: both}
				}
				return d
			})
		}, startDiffering},
		{"both listed, one claims that the other failed: starts both", stoppedWorld(setAB, setB, Superblock{InSync: setA}, Superblock{InSync: setAB}), stepper{window: true}, func(r *rules) {
			r.decide = changed(func(w Witness, v View, d Decision) Decision {
				if d.Action == Start {
					d.InSync = ours(w, v) & w.InSync
				}
				return d
			})
		}, startLacking},
		{"each claims that the other failed: starts one", stoppedWorld(setAB, setAB, Superblock{InSync: setA}, Superblock{InSync: setB}), stepper{window: true}, func(r *rules) {
			r.decide = changed(func(_ Witness, _ View, d Decision) Decision {
				if d.Reason == SplitBrain {
					return Decision{Action: Start, InSync: setA}
				}
				return d
			})
		}, startLacking},
		{"one is being rebuilt: counts as current", stoppedWorld(setAB, setB, Superblock{InSync: setAB}, Superblock{InSync: setAB, Rebuild: ByBitmap}), stepper{window: true}, func(r *rules) {
			r.decide = func(self Writer, w Witness, known bool, v View) Decision {
				for id := range v {
					v[id].Superblock.Rebuild = NoRebuild
				}
				return Decide(self, w, known, v)
			}
		}, startLacking},
		{"listed replica unreachable: starts the other", runningWorld(), stepper{faults: 3, only: []kind{linkLost}}, func(r *rules) {
			r.decide = changed(func(w Witness, v View, d Decision) Decision {
				if there := ours(w, v); d.Reason == ReplicaMissing && there != 0 {
					return Decision{Action: Start, InSync: there}
				}
				return d
			})
		}, listsLacking},
		{"a listed replica unreachable: starts without changing the witness", runningWorld(), stepper{faults: 2}, func(r *rules) {
			r.start = func(w Witness, self Writer, _, _ Set) (Witness, error) {
				if w.permits(self) != nil {
					return w, ErrFenced
				}
				w.Held, w.Clean = w.InSync, false
				return w, nil
			}
		}, listsLacking},
		{"a listed replica is blank: creates again", func() world {
			s := stoppedWorld(setAB, setB, Superblock{InSync: setAB})
			s.Replicas[1].Seen, s.Replicas[1].Lacks = Seen{State: Blank}, true
			return s
		}(), stepper{window: true}, func(r *rules) {
			r.decide = func(self Writer, w Witness, known bool, v View) Decision {
				d := ignoreEpochs(self, w, known, v)
				if d.Reason == ReplicaNotOurs {
					return Decision{Action: Create, InSync: w.Replicas}
				}
				return d
			}
		}, startLacking},
		{"a listed replica has old data: starts both", func() world {
			s := stoppedWorld(setAB, setB, Superblock{InSync: setAB}, Superblock{InSync: setAB})
			s.Replicas[1].Seen.Superblock.Epoch = 0
			return s
		}(), stepper{window: true}, func(r *rules) { r.decide = ignoreEpochs }, startLacking},
		{"an unlisted replica is blank: rebuilds by bitmap", runningWorld(), stepper{faults: 1, replace: true}, func(r *rules) {
			r.readd = func(running Set, s Seen, logged, discarded bool) Return {
				if s.State == Blank {
					return AddByBitmap
				}
				return Readd(running, s, logged, discarded)
			}
		}, rebuiltLacking},
		{"a full rebuild was interrupted: continues by bitmap", runningWorld(), stepper{faults: 2, replace: true}, func(r *rules) {
			r.readd = func(running Set, s Seen, logged, discarded bool) Return {
				if s.Superblock.Rebuild == InFull {
					return AddByBitmap
				}
				return Readd(running, s, logged, discarded)
			}
		}, rebuiltLacking},
	}
}

// plantedStops contains mistakes in the treatment of clean and unclean stops, and in the use of the
// log.
func plantedStops() []planted {
	power := stepper{faults: 1, only: []kind{powerLost}}
	lost := stepper{faults: 2, only: []kind{serverLost, powerLost}}
	byLog := func(running Set, s Seen, _, discarded bool) Return { return Readd(running, s, true, discarded) }
	return []planted{
		{"unclean, both current: starts both", runningWorld(), power, func(r *rules) {
			r.decide = func(self Writer, w Witness, known bool, v View) Decision {
				w.Clean = true
				return Decide(self, w, known, v)
			}
		}, startDiffering},
		{"unclean, both current: re-adds the second by the log", runningWorld(), power, func(r *rules) { r.readd = byLog }, rebuiltDiffers},
		{"unclean, one unreachable: the log counts for it", runningWorld(), lost, func(r *rules) {
			r.start = func(w Witness, self Writer, inSync, logged Set) (Witness, error) {
				return w.Start(self, inSync, logged|w.InSync&^inSync)
			}
		}, rebuiltDiffers},
		{"the start does not end the clean state", runningWorld(), power, func(r *rules) {
			r.start = func(w Witness, self Writer, inSync, logged Set) (Witness, error) {
				clean := w.Clean
				w, err := w.Start(self, inSync, logged)
				w.Clean = clean
				return w, err
			}
		}, startDiffering},
		{"the stop is recorded as clean before it is complete", runningWorld(), power, func(r *rules) { r.cleanEarly = true }, startDiffering},
		{"a publication counts as a clean stop", runningWorld(), stepper{faults: 2, only: []kind{powerLost, published}}, func(r *rules) {
			r.publish = func(w Witness, node string) Witness {
				w = w.Publish(node)
				w.Clean = true
				return w
			}
		}, startDiffering},
		{"the log counts for a replica when the witness drops it", runningWorld(), lost, func(r *rules) { r.logEarly = true }, rebuiltDiffers},
		{"the log counts for a replica that was rebuilt and dropped again", degradedWorld(), stepper{faults: 2, only: []kind{serverLost, powerLost}}, func(r *rules) {
			r.setInSync = func(w Witness, self Writer, inSync Set) (Witness, error) {
				logged := w.Logged
				w, err := w.SetInSync(self, inSync)
				w.Logged |= logged
				return w, err
			}
		}, rebuiltDiffers},
		{"the log stays in memory while a replica is missing", runningWorld(), stepper{faults: 1, only: []kind{serverLost}}, func(r *rules) { r.coreDegraded = true }, rebuiltLacking},
		{"the log moves to memory before the witness lists the replica", degradedWorld(), power, func(r *rules) { r.coreEarly = true }, rebuiltDiffers},
	}
}

// plantedRestores contains mistakes that matter when the witness has been restored from a backup.
func plantedRestores() []planted {
	model := restoredModel()
	return []planted{
		{"restored: the epoch does not count starts", restorableWorld(), model, func(r *rules) {
			r.start = func(w Witness, self Writer, inSync, logged Set) (Witness, error) {
				started, err := w.Start(self, inSync, logged)
				if err == nil && started.InSync == w.InSync {
					started.Epoch = w.Epoch
				}
				return started, err
			}
		}, startDiffering},
		{"restored: the epoch is not written before the start", restorableWorld(), model, func(r *rules) { r.startUnwritten = true }, startDiffering},
		{"restored: the running mirror writes its epoch", restorableWorld(), model, func(r *rules) { r.followRestored = true }, startDiffering},
		{"restored: the running mirror changes the witness", restorableWorld(), model, func(r *rules) { r.changeRestored = true }, startDiffering},
		{"restored: a later epoch is ignored", restorableWorld(), model, func(r *rules) {
			r.decide = func(self Writer, w Witness, known bool, v View) Decision {
				for id := range v {
					v[id].Superblock.Epoch = 0
				}
				return Decide(self, w, known, v)
			}
		}, startDiffering},
		{"restored without its status: counts as new", restorableWorld(), model, func(r *rules) {
			r.decide = func(self Writer, w Witness, known bool, v View) Decision {
				if known && !w.Created && w.permits(self) == nil {
					return decideNew(w, v)
				}
				return Decide(self, w, known, v)
			}
		}, startDiffering},
	}
}

// restorableWorld returns the state of a volume that node1 uses, with a witness that can be
// restored.
func restorableWorld() world {
	s := runningWorld()
	s.Restorable = true
	return s
}

// restoredModel returns a model with the failures after which a restored witness is recognized in
// every order of steps, because a reachable replica has taken part in each start.
func restoredModel() stepper {
	return stepper{faults: 3, restore: true, window: true, only: []kind{powerLost, witnessRestored, witnessRecreated}}
}

// plantedOrders contains mistakes in the order of the steps around the decision.
func plantedOrders() []planted {
	return []planted{
		{"the mirror continues without a replica before the witness has changed", runningWorld(), stepper{faults: 1}, func(r *rules) { r.failFirst = true }, listsLacking},
		{"the mirror continues after an error when the superblock is written", runningWorld(), stepper{faults: 1, errors: true}, func(r *rules) { r.errorsPass, r.goOnAfterError = true, true }, listsLacking},
		{"the mirror drops a replica after an error, and returns the writes in flight", runningWorld(), stepper{faults: 1, errors: true}, func(r *rules) { r.errorsPass, r.inFlightReturns = true, true }, listsLacking},
		{"the mirror counts an empty slot as rebuilt", runningWorld(), stepper{faults: 1, only: []kind{serverLost}}, func(r *rules) { r.emptySlotSyncs = true }, rebuiltLacking},
		{"the mirror starts with an empty slot and forgets its bits", runningWorld(), stepper{faults: 2, only: []kind{serverLost, powerLost}}, func(r *rules) { r.forgetBits = true }, rebuiltDiffers},
		{"the witness lists a replica when its rebuild begins", runningWorld(), stepper{faults: 1}, func(r *rules) { r.listEarly = true }, listsLacking},
		{"the witness lists a replica before its superblock is written", runningWorld(), stepper{faults: 2}, func(r *rules) { r.listUnwritten = true }, cannotStart},
		{"a publication to an earlier node reuses its generation", runningWorld(), stepper{faults: 2}, func(r *rules) {
			r.publish = func(w Witness, node string) Witness {
				w = w.Publish(node)
				w.Writer.Generation = 1
				if node == nodeNames[1] {
					w.Writer.Generation = 2
				}
				return w
			}
		}, listsLacking},
		{"a delayed controller admits an earlier publication", runningWorld(), stepper{faults: 3, only: []kind{published, lateExport}}, func(r *rules) { r.admitUnchecked = true }, writesAfter},
		{"a replica is removed while the mirror has it", runningWorld(), stepper{faults: 3, replace: true, only: []kind{replicaAdded, replicaRemoved}}, func(r *rules) {
			r.remove = func(w Witness, id ID) (Witness, error) {
				w.Held = w.InSync
				return w.Remove(id)
			}
		}, listsLacking},
		{"a replacement gets the slot of a replica that may return", degradedWorld(), stepper{faults: 1, replace: true, only: []kind{replicaAdded}}, func(r *rules) { r.dropSlot = true }, rebuiltLacking},
	}
}

// plantedKeeps contains mistakes that matter when an administrator keeps a replica.
func plantedKeeps() []planted {
	model := stepper{faults: 2, keep: true, only: []kind{published, unpublished}}
	return []planted{
		{"kept while the volume is published", degradedWorld(), model, func(r *rules) {
			r.keep = func(w Witness, id ID) (Witness, error) {
				writer := w.Writer
				w.Writer.Node = ""
				w, err := w.Keep(id)
				w.Writer = writer
				return w, err
			}
		}, startLacking},
		{"the discarded replica is not recorded", degradedWorld(), model, func(r *rules) {
			r.keep = func(w Witness, id ID) (Witness, error) {
				w, err := w.Keep(id)
				w.Discarded = 0
				return w, err
			}
		}, neverRebuilt},
		{"a discarded replica is left", degradedWorld(), model, func(r *rules) {
			r.readd = func(running Set, s Seen, logged, _ bool) Return { return Readd(running, s, logged, false) }
		}, neverRebuilt},
		{"a discarded replica is rebuilt by the log", degradedWorld(), model, func(r *rules) {
			r.readd = func(running Set, s Seen, logged, discarded bool) Return {
				if discarded {
					return AddByBitmap
				}
				return Readd(running, s, logged, discarded)
			}
		}, rebuiltLacking},
		{"the discarded replica stays in sync", degradedWorld(), model, func(r *rules) {
			r.keep = func(w Witness, id ID) (Witness, error) {
				before := w.InSync
				w, err := w.Keep(id)
				w.InSync |= before
				return w, err
			}
		}, listsLacking},
	}
}

func TestModelFindsPlantedMistakes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	t.Parallel()
	for _, p := range slices.Concat(plantedDecisions(), plantedStops(), plantedRestores(), plantedKeeps(), plantedOrders()) {
		t.Run(p.name, func(t *testing.T) {
			m := p.model
			m.rules = productRules()
			if m.window && !m.restore { // TestModelViolatesNoInvariant reaches no such state
				r := search(&m, p.initial, 100, 1_000_000)
				require.True(t, r.complete && r.found == nil, "without the mistake: %v", r.found)
			}
			p.plant(&m.rules)
			r := search(&m, p.initial, 100, 1_500_000)
			require.NotNil(t, r.found, "the model does not find it in %d states", r.states)
			assert.Equal(t, p.finds, r.found.violation)
			t.Logf("%d states: %v", r.states, r.found)
		})
	}
}
