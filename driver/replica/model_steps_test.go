package replica

import "slices"

// The events of the model.
const (
	linkLost kind = iota
	linkBack
	serverLost
	serverBack
	controllerCut
	controllerBack
	apiLost
	apiBack
	powerLost
	powerBack
	pluginRestarted
	published
	unpublished
	kept
	exported
	unexported
	lateExport
	attached
	errorReturned
	ioRepeated
	replicaAdded
	replicaRemoved
	createSuperblock
	created
	decided
	startSuperblock
	started
	unstaged
	cleanStored
	logStored
	coreLog
	writeBegun
	bitWritten
	dataWritten
	acknowledged
	bitCleared
	dropped
	failed
	superblockWritten
	witnessFollowed
	released
	rebuildBegun
	rebuildStopped
	heldStored
	rebuilt
	listed
	slotsChanged
	backedUp
	witnessRestored
	witnessRecreated
	kindCount
)

var kindTexts = [kindCount]struct {
	format   string
	from, to int
}{
	linkLost:          {"%s loses its link to %s", 0, 2},
	linkBack:          {"the link of %s to %s is back", 0, 2},
	serverLost:        {"the server of %s is lost", 1, 2},
	serverBack:        {"the server of %s is back", 1, 2},
	controllerCut:     {"the controller loses its link to %s", 1, 2},
	controllerBack:    {"the link of the controller to %s is back", 1, 2},
	apiLost:           {"%s loses the API server", 0, 1},
	apiBack:           {"%s reaches the API server", 0, 1},
	powerLost:         {"%s loses power", 0, 1},
	powerBack:         {"%s is back", 0, 1},
	pluginRestarted:   {"the plugin of %s restarts", 0, 1},
	published:         {"the witness names %s", 0, 1},
	unpublished:       {"an administrator ends the publication", 0, 0},
	kept:              {"an administrator keeps %s", 1, 2},
	exported:          {"%s is exported to the publication of the witness", 1, 2},
	unexported:        {"the export of %s to an earlier publication ends", 1, 2},
	lateExport:        {"a delayed call exports %s to an earlier publication", 1, 2},
	attached:          {"%s gets the volume's context", 0, 1},
	errorReturned:     {"the write of %s fails on %s", 0, 2},
	ioRepeated:        {"%s repeats the I/O to %s", 0, 2},
	replicaAdded:      {"the witness names another replica %s", 1, 2},
	replicaRemoved:    {"%s is removed", 1, 2},
	createSuperblock:  {"%s writes the first superblock of %s", 0, 2},
	created:           {"%s records that the volume is created", 0, 1},
	decided:           {"%s decides to start, and stores the witness", 0, 1},
	startSuperblock:   {"%s writes the superblock of %s before the start", 0, 2},
	started:           {"%s starts the array", 0, 1},
	unstaged:          {"%s stops the array", 0, 1},
	cleanStored:       {"%s records the clean stop in the witness", 0, 1},
	logStored:         {"%s records in the witness that the log covers %s", 0, 2},
	coreLog:           {"%s moves the log to memory", 0, 1},
	writeBegun:        {"a write begins on %s", 0, 1},
	bitWritten:        {"the bit of %s's write is on %s", 0, 2},
	dataWritten:       {"the data of %s's write are on %s", 0, 2},
	acknowledged:      {"the write of %s is acknowledged", 0, 1},
	bitCleared:        {"%s clears the bit on %s", 0, 2},
	dropped:           {"%s removes %s from the witness", 0, 2},
	failed:            {"%s fails %s in the mirror", 0, 2},
	superblockWritten: {"%s writes the superblock of %s", 0, 2},
	witnessFollowed:   {"%s stores the mirror's in-sync set in the witness", 0, 1},
	released:          {"%s lets new writes go on", 0, 1},
	rebuildBegun:      {"%s begins to rebuild %s", 0, 2},
	rebuildStopped:    {"%s stops the rebuild of %s", 0, 2},
	heldStored:        {"%s records which replicas the mirror has", 0, 1},
	rebuilt:           {"%s has rebuilt %s", 0, 2},
	listed:            {"%s adds its members to the witness", 0, 1},
	slotsChanged:      {"%s gives each replica of the witness a slot", 0, 1},
	backedUp:          {"the witness is backed up", 0, 0},
	witnessRestored:   {"the witness is restored", 0, 0},
	witnessRecreated:  {"the witness is restored without its status", 0, 0},
}

// A step is a possible next state, and the invariant that it violates.
type step struct {
	event     event
	next      world
	violation string
}

// A stepper lists the possible next steps.
type stepper struct {
	rules rules
	// faults limits the number of failures and publications, replace adds a third replica, and
	// errors allows live servers to fail writes.
	faults          uint8
	replace, errors bool
	// restore allows the witness to be replaced with an earlier witness, or with a witness without
	// a status.
	restore bool
	// keep allows an administrator to keep one replica.
	keep bool
	// reduced merges states if their differences cannot affect decisions. Do not set reduced if
	// mistakes are planted in the rules.
	reduced bool
	// window permits a witness that lists a replica lacking a write, so that the search also finds
	// mistakes that have an effect only when an array starts.
	window bool
	// only lists the failures that can happen; if it is empty, all failures can happen.
	only  []kind
	steps []step
}

func (m *stepper) add(s world, k kind, n int, id ID, violation string) {
	m.steps = append(m.steps, step{event{k, uint8(n), id}, s, violation})
}

// fault adds a step that counts as a fault.
func (m *stepper) fault(s world, k kind, n int, id ID) {
	if s.Faults < m.faults && (m.only == nil || slices.Contains(m.only, k)) {
		s.Faults++
		m.add(s, k, n, id, "")
	}
}

func (m *stepper) next(s world) []step {
	m.steps = m.steps[:0]
	m.environment(s)
	m.controller(s)
	for n := range s.Nodes {
		if s.Nodes[n].Off {
			continue
		}
		if node := s.Nodes[n]; node.Running && node.Members == 0 { // see inert
			if !node.Write {
				m.add(s.stopped(n), unstaged, n, 0, "")
			}
		} else if node.Running {
			m.running(s, n)
		} else {
			m.stage(s, n)
		}
	}
	return m.steps
}

// running adds the steps of a running mirror. To the mirror's plugin, an API server with restored
// data is like an unresponsive API server.
func (m *stepper) running(s world, n int) {
	first, noAPI := len(m.steps), s.Nodes[n].NoAPI
	if s.W.Epoch < m.epoch(&s, n) && !m.rules.changeRestored {
		s.Nodes[n].NoAPI = true
	}
	m.writes(s, n)
	m.maintain(s, n)
	m.keepLog(s, n)
	m.heal(s, n)
	for i := range m.steps[first:] {
		m.steps[first+i].next.Nodes[n].NoAPI = noAPI
	}
}

func (m *stepper) environment(s world) {
	if m.restore {
		m.restoreWitness(s)
	}
	for id := range ID(MaxReplicas) {
		if !s.Replicas[id].Exists {
			continue
		}
		lost, back := s, s
		lost.Replicas[id].Cut, back.Replicas[id].Cut = true, false
		for n := range s.Nodes {
			lost.Nodes[n].Link |= SetOf(id)
			back.Nodes[n].Link &^= SetOf(id)
		}
		if lost != s {
			m.fault(lost, serverLost, 0, id)
		}
		if back != s {
			m.add(back, serverBack, 0, id, "")
		}
		cut := s
		cut.Replicas[id].Cut = !cut.Replicas[id].Cut
		if s.Replicas[id].Cut {
			m.add(cut, controllerBack, 0, id, "")
		} else {
			m.fault(cut, controllerCut, 0, id)
		}
	}
	for n := range s.Nodes {
		node := s.Nodes[n]
		for id := range ID(MaxReplicas) {
			if !s.Replicas[id].Exists {
				continue
			}
			link := s
			link.Nodes[n].Link ^= SetOf(id)
			if node.Link.Has(id) {
				m.add(link, linkBack, n, id, "")
			} else {
				m.fault(link, linkLost, n, id)
			}
		}
		api := s
		api.Nodes[n].NoAPI = !node.NoAPI
		if node.NoAPI {
			m.add(api, apiBack, n, 0, "")
		} else {
			m.fault(api, apiLost, n, 0)
		}
		power := s
		power.Nodes[n] = nodeState{Off: !node.Off, NoAPI: node.NoAPI, Link: node.Link}
		if node.Off {
			m.add(power, powerBack, n, 0, "")
			continue
		}
		m.fault(power, powerLost, n, 0)
		if node.Plan != noPlan || node.Dropped != 0 {
			restarted := s
			restarted.Nodes[n].Plan, restarted.Nodes[n].PlanSet, restarted.Nodes[n].PlanEpoch, restarted.Nodes[n].Dropped = noPlan, 0, 0, 0
			m.fault(restarted, pluginRestarted, n, 0)
		}
	}
}

// restoreWitness adds the steps of backing up and restoring the API server's data.
func (m *stepper) restoreWitness(s world) {
	if !s.BackedUp {
		t := s
		t.Backup, t.BackedUp = s.W, true
		m.add(t, backedUp, 0, 0, "")
		return
	}
	t := s
	t.W = s.Backup
	m.fault(t, witnessRestored, 0, 0)
	t.W = Witness{Writer: s.Backup.Writer, Replicas: s.Backup.Replicas}
	m.fault(t, witnessRecreated, 0, 0)
}

// controller adds publications, and updates of the host lists to match the witness. The controller
// is stateless, so a restart of the controller is not an event.
func (m *stepper) controller(s world) {
	generation := uint8(s.W.Writer.Generation)
	for n := range s.Nodes {
		if s.W.Writer.Node != nodeNames[n] {
			t := s
			t.W = m.rules.publish(s.W, nodeNames[n])
			m.fault(t, published, n, 0)
		}
	}
	if m.keep {
		m.keepReplica(s)
	}
	for id := range ID(MaxReplicas) {
		r := s.Replicas[id]
		if r.Exists && !r.Cut {
			t := s
			switch r.Host {
			case generation:
			case 0:
				t.Replicas[id].Host = generation
				m.add(t, exported, 0, id, "")
			default:
				t.Replicas[id].Host = 0
				m.add(t, unexported, 0, id, "")
			}
			for late := uint8(1); late < generation && m.rules.admitUnchecked; late++ {
				t := s
				t.Replicas[id].Host = late
				m.fault(t, lateExport, 0, id)
			}
		}
		switch {
		case !m.replace:
		case !r.Exists:
			if w, err := s.W.Add(id); err == nil {
				t := s
				t.W = w
				t.Replicas[id] = replicaState{Exists: true, Seen: Seen{State: Blank}, Lacks: true, Host: generation}
				m.fault(t, replicaAdded, 0, id)
			}
		case s.W.Replicas.Len() == MaxReplicas:
			if w, err := m.rules.remove(s.W, id); err == nil {
				t := s
				t.W, t.Replicas[id] = w, replicaState{}
				m.fault(t, replicaRemoved, 0, id)
			}
		}
	}
	for n := range s.Nodes {
		if g := s.W.Writer.Generation; s.W.Writer.Node == nodeNames[n] && uint64(s.Nodes[n].Generation) != g && !s.Nodes[n].Running && !s.Nodes[n].Off {
			t := s
			t.Nodes[n].Generation, t.Nodes[n].Plan, t.Nodes[n].PlanSet, t.Nodes[n].PlanEpoch = uint8(g), noPlan, 0, 0
			m.add(t, attached, n, 0, "")
		}
	}
}
