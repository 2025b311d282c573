package replica

import (
	"fmt"
	"slices"
)

// The model of a replicated volume contains all events that can happen to two nodes, the servers of
// the replicas, the links between them, and the API server. The model uses the decisions and
// transitions of this package; tests can replace any of them with an incorrect version. Data is
// abstract: a replica has a content, and may lack an acknowledged write.

// rules contains the decisions that the model makes.
type rules struct {
	decide    func(self Writer, w Witness, known bool, v View) Decision
	readd     func(running Set, s Seen, logged, discarded bool) Return
	publish   func(w Witness, node string) Witness
	start     func(w Witness, self Writer, inSync, logged Set) (Witness, error)
	setInSync func(w Witness, self Writer, inSync Set) (Witness, error)
	remove    func(w Witness, id ID) (Witness, error)
	keep      func(w Witness, id ID) (Witness, error)
	// failFirst lets the mirror continue without a replica before the witness has changed.
	failFirst bool
	// errorsPass makes the mirror drop a replica after a live server's error, as md does, instead
	// of holding the failed writes.
	errorsPass bool
	// goOnAfterError lets the mirror continue after a live server's error once the superblocks are
	// written, as md with native metadata does.
	goOnAfterError bool
	// inFlightReturns lets writes in flight return immediately when a live server returns an error,
	// as md does.
	inFlightReturns bool
	// forgetBits makes an array that starts with an empty slot ignore the marks of its bitmap, as
	// md with external metadata does.
	forgetBits bool
	// emptySlotSyncs counts an empty slot as rebuilt, as dm-mirror does without handle_errors.
	emptySlotSyncs bool
	// listEarly adds a replica to the in-sync set when its rebuild begins.
	listEarly bool
	// listUnwritten stores an in-sync set before the superblocks of its members.
	listUnwritten bool
	// startEarly starts an array without storing the witness if the API server does not respond.
	startEarly bool
	// admitUnchecked lets a delayed controller admit an earlier publication.
	admitUnchecked bool
	// cleanEarly records a clean stop before the mirror is stopped.
	cleanEarly bool
	// logEarly records that the log covers a replica as soon as the witness drops the replica.
	logEarly bool
	// coreDegraded keeps the log in memory after a replica is lost.
	coreDegraded bool
	// coreEarly moves the log to memory when a rebuild ends, before the witness lists the replica.
	coreEarly bool
	// startUnwritten starts a mirror without writing the epoch of the start to the superblocks.
	startUnwritten bool
	// followRestored writes the epoch of a restored witness to the superblocks of a running mirror.
	followRestored bool
	// changeRestored lets a running mirror change a restored witness.
	changeRestored bool
	// dropSlot assigns the slot of a replica that is not in sync to its replacement.
	dropSlot bool
}

func productRules() rules {
	return rules{decide: Decide, readd: Readd, publish: Witness.Publish, start: Witness.Start, setInSync: Witness.SetInSync, remove: Witness.Remove, keep: Witness.Keep}
}

const nodeCount = 2

var nodeNames = [nodeCount]string{"node1", "node2"}

// A replicaState is the state of a replica: its data and its export.
type replicaState struct {
	Exists bool
	Seen   Seen
	Host   uint8 // the exported generation; 0 for none
	Cut    bool  // the controller cannot reach the server

	Content uint8 // the write that the replica contains
	Lacks   bool  // an acknowledged write is missing, or an administrator has discarded the content
	Bit     bool  // the bitmap on the replica marks the chunk
	Used    uint8 // the last generation with this replica in an array

	// Discarded means that an administrator has discarded the content. No rebuild has overwritten
	// it since.
	Discarded bool
}

type plan uint8

const (
	noPlan plan = iota
	planCreate
	planStart // the witness has accepted PlanSet
	planDrop  // the witness no longer lists PlanSet
	planClean // the mirror was stopped, but the witness does not record that yet
)

type hold uint8

const (
	free       hold = iota
	afterDrop       // writes in flight return, new writes wait for the superblocks
	afterError      // all writes wait for the witness; used only with errorsPass
)

// A nodeState is the state of a node's kernel and plugin.
type nodeState struct {
	Off   bool
	NoAPI bool
	Link  Set // the replicas whose servers the node cannot reach

	// Generation is the latest publication that the node has seen. Known is the in-sync set that
	// the node last stored.
	Generation uint8
	Known      Set

	Running    bool
	Members    Set // replicas that are in sync in the kernel
	Slots      Set
	Rebuilding Set
	Full       bool
	Failing    Set // replicas whose servers returned an error, so that writes to them are held
	Hold       hold
	Core       bool // the log is only in memory, so writes leave no marks
	Bit        bool // the marks of the log on the replicas, as known to the kernel
	Dropped    Set  // replicas that the mirror has lost and the witness does not list in Logged

	Write     bool // a write is in flight
	WriteID   uint8
	WriteBits Set  // replicas that have the bit of the write
	WriteData Set  // replicas that have the data of the write
	Plan      plan // the plugin's plan; lost when the plugin restarts
	PlanSet   Set
	PlanEpoch uint64 // epoch of the witness with PlanSet
}

type world struct {
	W        Witness // epochs are relative, see canonical
	Replicas [MaxReplicas]replicaState
	Nodes    [nodeCount]nodeState
	// Faults is the number of failures and publications so far.
	Faults uint8
	// Backup is an earlier witness, if BackedUp is set. Restorable is set if the model makes
	// backups of the witness.
	Backup               Witness
	BackedUp, Restorable bool
	// Keeping means that an administrator has decided to keep a replica. Kept means that the
	// witness has recorded such a decision. The replica may be incomplete.
	Keeping, Kept bool
}

func initialWorld() world {
	s := world{W: NewWitness(SetOf(0, 1))}
	for _, id := range s.W.Replicas.IDs() {
		s.Replicas[id] = replicaState{Exists: true, Seen: Seen{State: Blank}}
	}
	return s
}

// runningWorld returns the state of a volume that node1 uses.
func runningWorld() world {
	s := initialWorld()
	s.W = Witness{Writer: Writer{nodeNames[0], 1}, Created: true, Replicas: SetOf(0, 1), InSync: SetOf(0, 1), Held: SetOf(0, 1), Epoch: 1}
	for _, id := range s.W.Replicas.IDs() {
		s.Replicas[id].Seen = Seen{State: Ours, Superblock: Superblock{Epoch: 1, InSync: s.W.Replicas}}
		s.Replicas[id].Host, s.Replicas[id].Used = 1, 1
	}
	s.Nodes[0] = nodeState{Generation: 1, Known: s.W.InSync, Running: true, Members: s.W.Replicas, Slots: s.W.Replicas, Core: true}
	return s
}

// canonical reduces the state to the facts that decisions depend on: the order of epochs relative
// to the witness, which contents are equal, and which plans can succeed. If reduced is true, it
// also omits the mirror of an inert node, and marks of a log that is not in use.
func (s world) canonical(reduced bool) world {
	s.rankEpochs()
	for n := range s.Nodes {
		node := &s.Nodes[n]
		if s.writes(n) {
			continue
		}
		node.Dropped = 0 // the witness does not permit any change by a fenced node
		if node.Plan == planClean {
			node.Plan = noPlan
		}
		if reduced && s.inert(n) {
			*node = nodeState{Off: node.Off, NoAPI: node.NoAPI, Link: node.Link, Running: node.Running, Write: node.Write}
		}
	}
	if reduced && s.W.Logged == 0 && !s.logInUse() {
		for id := range s.Replicas {
			s.Replicas[id].Bit = false // decisions do not depend on the bit; an extra mark only costs a copy
		}
	}
	var names [2*MaxReplicas + nodeCount + 1]uint8
	count := uint8(0)
	rename := func(content *uint8) {
		if *content == 0 {
			return
		}
		if names[*content] == 0 {
			count++
			names[*content] = count
		}
		*content = names[*content]
	}
	for id := range s.Replicas {
		rename(&s.Replicas[id].Content)
	}
	for n := range s.Nodes {
		rename(&s.Nodes[n].WriteID)
	}
	return s
}

// rankEpochs replaces each epoch with its rank. Without backups, no epoch is later than the
// witness's epoch, and the order of earlier epochs matters only for replicas that the witness
// lists.
func (s *world) rankEpochs() {
	epochs := []*uint64{&s.W.Epoch, &s.Backup.Epoch}
	listed := map[*uint64]bool{}
	for id := range s.Replicas {
		e := &s.Replicas[id].Seen.Superblock.Epoch
		epochs, listed[e] = append(epochs, e), s.W.InSync.Has(ID(id))
	}
	for n := range s.Nodes {
		epochs = append(epochs, &s.Nodes[n].PlanEpoch)
	}
	values := make([]uint64, len(epochs))
	for i, e := range epochs {
		if values[i] = *e; !s.Restorable && *e < s.W.Epoch && !listed[e] {
			values[i] = 0
		}
	}
	for i, e := range epochs {
		*e = 0
		for j, v := range values {
			if v < values[i] && !slices.Contains(values[:j], v) {
				*e++
			}
		}
	}
}

// inert reports whether a node is fenced and can never again reach a replica, complete a write or
// change the witness.
func (s *world) inert(n int) bool {
	node := s.Nodes[n]
	for id := range s.Replicas {
		if s.Replicas[id].Host != 0 && s.Replicas[id].Host == node.Generation {
			return false
		}
	}
	return !s.writes(n) && node.Plan == noPlan && node.Hold == free && node.Rebuilding == 0 &&
		(!node.Write || !node.WriteData.Contains(node.Members) || node.Members == 0)
}

// logInUse reports whether a mirror has its log on replicas.
func (s *world) logInUse() bool {
	for n := range s.Nodes {
		if node := s.Nodes[n]; node.Running && !node.Core && node.Members != 0 {
			return true
		}
	}
	return false
}

// newContent returns a content that exists on no replica.
func (s *world) newContent() uint8 {
	var used [2*MaxReplicas + nodeCount + 1]bool
	for id := range s.Replicas {
		used[s.Replicas[id].Content] = true
	}
	for n := range s.Nodes {
		used[s.Nodes[n].WriteID] = true
	}
	for c := uint8(1); ; c++ {
		if !used[c] {
			return c
		}
	}
}

// reaches reports whether I/O of node n can reach the replica.
func (s *world) reaches(n int, id ID) bool {
	r := s.Replicas[id]
	return r.Exists && !s.Nodes[n].Off && !s.Nodes[n].Link.Has(id) && !s.Nodes[n].Failing.Has(id) && r.Host != 0 && r.Host == s.Nodes[n].Generation
}

// self returns the publication that the node acts for.
func (s *world) self(n int) Writer { return Writer{nodeNames[n], uint64(s.Nodes[n].Generation)} }

// writes reports whether the witness names this publication.
func (s *world) writes(n int) bool { return s.W.Writer == s.self(n) }

func (s *world) reachesAll(n int, set Set) bool {
	for id := range ID(MaxReplicas) {
		if set.Has(id) && !s.reaches(n, id) {
			return false
		}
	}
	return true
}

func (s *world) view(n int) View {
	var v View
	for id := range ID(MaxReplicas) {
		if s.reaches(n, id) {
			v[id] = s.Replicas[id].Seen
		}
	}
	return v
}

// lacking returns the replicas of set that lack an acknowledged write.
func (s *world) lacking(set Set) Set {
	var lacking Set
	for id := range ID(MaxReplicas) {
		if set.Has(id) && s.Replicas[id].Lacks {
			lacking |= SetOf(id)
		}
	}
	return lacking
}

// differing reports whether two replicas of set have different contents.
func (s *world) differing(set Set) bool {
	first := -1
	for id := range ID(MaxReplicas) {
		switch {
		case !set.Has(id):
		case first < 0:
			first = int(id)
		case s.Replicas[id].Content != s.Replicas[first].Content:
			return true
		}
	}
	return false
}

// An event is one step of the model.
type event struct {
	Kind kind
	Node uint8
	ID   ID
}

type kind uint8

func (e event) String() string {
	text := kindTexts[e.Kind]
	return fmt.Sprintf(text.format, []any{nodeNames[e.Node%nodeCount], string(rune('A' + e.ID))}[text.from:text.to]...)
}
