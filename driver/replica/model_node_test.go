package replica

// The steps of a node are the steps of its plugin and of its mirror.

// stage adds the steps of a node without a running array.
func (m *stepper) stage(s world, n int) {
	node := s.Nodes[n]
	if node.Plan == planStart {
		m.start(s, n)
		return
	}
	if node.Plan == planClean && !node.NoAPI {
		if w, err := s.W.Stop(s.self(n)); err == nil {
			t := s
			t.W, t.Nodes[n].Plan = w, noPlan
			m.add(t, cleanStored, n, 0, "")
		}
	}
	d := m.rules.decide(s.self(n), s.W, !node.NoAPI, s.view(n))
	switch d.Action {
	case Create:
		var blank Set
		for _, id := range s.W.Replicas.IDs() {
			if s.Replicas[id].Seen.State == Blank && s.reaches(n, id) {
				blank |= SetOf(id)
				t := s
				t.Replicas[id].Seen = Seen{State: Ours, Superblock: Superblock{InSync: s.W.Replicas}}
				t.Replicas[id].Bit = false
				m.add(t, createSuperblock, n, id, "")
			}
		}
		if blank == 0 {
			if w, err := s.W.Create(s.self(n)); err == nil {
				t := s
				t.W = w
				m.add(t, created, n, 0, "")
			}
		}
	case Start:
		w, err := m.rules.start(s.W, s.self(n), d.InSync, d.Logged)
		early := m.rules.startEarly && node.NoAPI
		if early {
			w, err = s.W, nil
		}
		if err == nil && (!node.NoAPI || early) {
			t := s
			t.W, t.Nodes[n].Known, t.Nodes[n].Plan, t.Nodes[n].PlanSet, t.Nodes[n].PlanEpoch = w, d.InSync, planStart, d.InSync, w.Epoch
			m.add(t, decided, n, 0, "")
		}
	case Wait, Refuse:
	}
}

// agrees reports whether a member's superblock records members as the in-sync set, even with an
// earlier epoch.
func (s *world) agrees(id ID, members Set) bool {
	b := s.Replicas[id].Seen.Superblock
	return s.Replicas[id].Seen.State == Ours && b.InSync == members && b.Rebuild == NoRebuild
}

func (m *stepper) start(s world, n int) {
	set := s.Nodes[n].PlanSet
	if !s.reachesAll(n, set) {
		t := s
		t.Nodes[n].Plan, t.Nodes[n].PlanSet, t.Nodes[n].PlanEpoch = noPlan, 0, 0
		m.add(t, unstaged, n, 0, "")
		return
	}
	ready := true
	for _, id := range set.IDs() {
		if !s.agrees(id, set) || !m.rules.startUnwritten && s.Replicas[id].Seen.Superblock.Epoch != s.Nodes[n].PlanEpoch {
			ready = false
			t := s
			t.Replicas[id].Seen = Seen{State: Ours, Superblock: Superblock{Epoch: s.Nodes[n].PlanEpoch, InSync: set}}
			m.add(t, startSuperblock, n, id, "")
		}
	}
	if !ready {
		return
	}
	t := s
	node := &t.Nodes[n]
	node.Running, node.Members, node.Slots, node.Plan, node.PlanSet, node.PlanEpoch = true, set, s.W.Replicas, noPlan, 0, 0
	for _, id := range set.IDs() {
		t.Replicas[id].Used = node.Generation
	}
	first := set.IDs()[0]
	node.Core = set == node.Slots
	node.Bit = s.Replicas[first].Bit && !node.Core && !m.rules.forgetBits
	if node.Bit {
		for _, id := range set.IDs() { // the mirror copies marked regions from the first slot
			t.copyChunk(first, id)
			t.Replicas[id].Bit = true
		}
	}
	violation := ""
	switch {
	case !s.writes(n): // a fenced node may read old data; its reads have no effect
	case s.lacking(set) != 0:
		violation = "an array starts with a replica that lacks an acknowledged write"
	case t.differing(set):
		violation = "an array starts with members that differ"
	}
	m.add(t, started, n, 0, violation)
}

// writes adds the mirror's steps for one write at a time.
func (m *stepper) writes(s world, n int) {
	node := s.Nodes[n]
	all := node.Members | node.Rebuilding
	if !node.Write {
		if node.Hold == free {
			t := s
			w := &t.Nodes[n]
			w.Write, w.WriteID, w.WriteBits, w.WriteData = true, s.newContent(), 0, 0
			if node.Bit {
				w.WriteBits = all
			}
			m.add(t, writeBegun, n, 0, "")
			t = s.stopped(n)
			t.Nodes[n].Plan = planClean
			m.add(t, unstaged, n, 0, "")
			if w, err := s.W.Stop(s.self(n)); err == nil && m.rules.cleanEarly && !node.NoAPI {
				t = s
				t.W = w
				m.add(t, cleanStored, n, 0, "")
			}
		}
		m.clearBits(s, n)
		return
	}
	marked := node.Core || node.WriteBits.Contains(all)
	for _, id := range all.IDs() {
		if !s.reaches(n, id) {
			continue
		}
		t := s
		switch {
		case !marked && !node.WriteBits.Has(id):
			t.Nodes[n].WriteBits |= SetOf(id)
			t.Replicas[id].Bit = true
			m.add(t, bitWritten, n, id, "")
		case marked && !node.WriteData.Has(id):
			t.Nodes[n].WriteData |= SetOf(id)
			t.Nodes[n].Bit = !node.Core
			t.Replicas[id].Content = node.WriteID
			violation := ""
			if s.Replicas[id].Used > node.Generation && !s.writes(n) {
				violation = "a node writes to a replica that a later publication has used"
			}
			m.add(t, dataWritten, n, id, violation)
		}
	}
	if node.WriteData.Contains(all) && (node.Hold != afterError || m.rules.inFlightReturns) {
		t := s
		for id := range ID(MaxReplicas) {
			if s.Replicas[id].Exists && !node.WriteData.Has(id) && !s.onlyDiscarded(n) {
				t.Replicas[id].Lacks = true
			}
		}
		t.Nodes[n].Write, t.Nodes[n].WriteID, t.Nodes[n].WriteBits, t.Nodes[n].WriteData = false, 0, 0, 0
		m.add(t, acknowledged, n, 0, "")
	}
	if m.errors && marked {
		m.fail(s, n)
	}
}

// fail adds a failed write on a live server. The mirror holds the write until the plugin allows a
// retry or removes the replica.
func (m *stepper) fail(s world, n int) {
	node := s.Nodes[n]
	for _, id := range ((node.Members | node.Rebuilding) &^ node.WriteData).IDs() {
		t := s
		switch {
		case node.Failing.Has(id):
			t.Nodes[n].Failing &^= SetOf(id)
			m.add(t, ioRepeated, n, id, "")
			continue
		case !s.reaches(n, id):
			continue
		case !m.rules.errorsPass:
			t.Nodes[n].Failing |= SetOf(id)
		case node.Members.Has(id) && node.Members.Len() > 1:
			t.Nodes[n].Members &^= SetOf(id)
			t.Nodes[n].Hold = afterError
		default:
			continue
		}
		m.fault(t, errorReturned, n, id)
	}
}

// clearBits adds the step in which the mirror clears the bit of a chunk. The mirror clears bits
// only if no slot is empty.
func (m *stepper) clearBits(s world, n int) {
	node := s.Nodes[n]
	if node.Core || node.Members != node.Slots && !m.rules.emptySlotSyncs || !s.reachesAll(n, node.Members) {
		return
	}
	for _, id := range node.Members.IDs() {
		if s.Replicas[id].Bit {
			t := s
			t.Nodes[n].Bit = false
			t.Replicas[id].Bit = false
			m.add(t, bitCleared, n, id, "")
		}
	}
}

// epoch returns the epoch to write to superblocks of a running mirror. A restored witness does not
// decrease this epoch.
func (m *stepper) epoch(s *world, n int) uint64 {
	epoch := s.W.Epoch
	for _, id := range s.Nodes[n].Members.IDs() {
		if !m.rules.followRestored {
			epoch = max(epoch, s.Replicas[id].Seen.Superblock.Epoch)
		}
	}
	return epoch
}

// superblock returns the contents of a member's superblock. It does not declare a replica to have
// failed before the witness has recorded the failure.
func (m *stepper) superblock(s *world, n int) Superblock {
	if m.rules.goOnAfterError {
		return Superblock{Epoch: m.epoch(s, n), InSync: s.Nodes[n].Members}
	}
	return Superblock{Epoch: m.epoch(s, n), InSync: s.Nodes[n].Members | s.Nodes[n].Known}
}

// maintain adds the steps that the plugin takes to keep the witness, the superblocks and the mirror
// consistent.
func (m *stepper) maintain(s world, n int) {
	node := s.Nodes[n]
	store := func(set Set, k kind, id ID, then func(*nodeState)) {
		if node.NoAPI {
			return
		}
		if w, err := m.rules.setInSync(s.W, s.self(n), set); err == nil {
			t := s
			t.W, t.Nodes[n].Known = w, set
			then(&t.Nodes[n])
			m.add(t, k, n, id, "")
		}
	}
	// A member may be alone in the witness only if its superblock records no rebuild.
	rebuilt := true
	for _, id := range node.Members.IDs() {
		if s.agrees(id, m.superblock(&s, n).InSync) {
			continue
		}
		rebuilt = rebuilt && (m.rules.listUnwritten || s.Replicas[id].Seen.Superblock.Rebuild == NoRebuild)
		if s.reaches(n, id) {
			t := s
			t.Replicas[id].Seen = Seen{State: Ours, Superblock: m.superblock(&s, n)}
			m.add(t, superblockWritten, n, id, "")
		}
	}
	for _, id := range node.Members.IDs() {
		rest := node.Members &^ SetOf(id)
		if rest == 0 {
			continue
		}
		fail := func(h hold) {
			t := s
			t.Nodes[n].Members, t.Nodes[n].Plan, t.Nodes[n].PlanSet = rest, noPlan, 0
			t.Nodes[n].Failing &^= SetOf(id)
			t.Nodes[n].Hold = max(node.Hold, h)
			t.Nodes[n].Dropped |= SetOf(id)
			if !m.rules.coreDegraded {
				t.diskLog(n)
			}
			m.add(t, failed, n, id, "")
		}
		switch {
		case node.Plan == planDrop && node.PlanSet.Has(id):
			fail(afterDrop)
		case node.Plan != noPlan || s.reaches(n, id):
		case m.rules.failFirst:
			fail(afterDrop)
		case rebuilt:
			store(rest, dropped, id, func(node *nodeState) { node.Plan, node.PlanSet = planDrop, SetOf(id) })
			if m.rules.logEarly && !node.NoAPI && s.writes(n) {
				m.steps[len(m.steps)-1].next.W.Logged |= SetOf(id)
			}
		}
	}
	agreed := true
	for _, id := range node.Members.IDs() {
		agreed = agreed && s.agrees(id, m.superblock(&s, n).InSync)
	}
	switch {
	case !rebuilt || node.Plan != noPlan:
	case node.Hold == afterError && !m.rules.goOnAfterError:
		store(node.Members, witnessFollowed, 0, func(node *nodeState) { node.Hold = afterDrop })
	case node.Hold != free && agreed:
		t := s
		t.Nodes[n].Hold = free
		m.add(t, released, n, 0, "")
	case node.Known != node.Members && agreed:
		store(node.Members, listed, 0, func(*nodeState) {})
	}
}

// diskLog replaces the log in memory with the log on the members. The writes in flight are then
// repeated.
func (s *world) diskLog(n int) {
	node := &s.Nodes[n]
	if node.Core {
		node.Core, node.Bit = false, s.Replicas[node.Members.IDs()[0]].Bit
		node.WriteBits, node.WriteData = 0, 0
	}
}

// keepLog adds the steps that the plugin takes to move the log and to record which replicas the log
// covers.
func (m *stepper) keepLog(s world, n int) {
	node := s.Nodes[n]
	if node.Core && !m.rules.coreDegraded || node.Plan != noPlan {
		return
	}
	all := node.Members | node.Rebuilding
	if lost := node.Dropped & s.W.Replicas &^ s.W.InSync; lost != 0 && !node.NoAPI && (!node.Write || node.WriteBits.Contains(all)) {
		if w, err := s.W.Log(s.self(n), lost); err == nil {
			t := s
			t.W, t.Nodes[n].Dropped = w, 0
			m.add(t, logStored, n, lost.IDs()[0], "")
		}
	}
	if all == node.Slots && all == node.Members && (node.Known == all || m.rules.coreEarly) && node.Hold == free && !node.Core && s.reachesAll(n, all) {
		t := s
		t.Nodes[n].Core, t.Nodes[n].Bit, t.Nodes[n].WriteBits, t.Nodes[n].Dropped = true, false, 0, 0
		for _, id := range all.IDs() {
			t.Replicas[id].Bit = false // the plugin formats the log for its next use
		}
		m.add(t, coreLog, n, 0, "")
	}
}

// stopped returns the state without the array of node n.
func (s world) stopped(n int) world {
	node := s.Nodes[n]
	s.Nodes[n] = nodeState{NoAPI: node.NoAPI, Link: node.Link, Generation: node.Generation}
	return s
}

// violated returns the invariant that a state violates, or an empty string.
func (m *stepper) violated(s world) string {
	if m.window {
		return ""
	}
	for _, id := range s.lacking(s.W.InSync).IDs() {
		if !s.Kept || !s.incomplete(id) { // otherwise, no node starts it
			return "the witness lists a replica that lacks an acknowledged write"
		}
	}
	for n := range s.Nodes {
		node := s.Nodes[n]
		for id := range ID(MaxReplicas) {
			if s.Replicas[id].Discarded && s.writes(n) && node.Running && !node.Members.Has(id) && s.reaches(n, id) &&
				m.rules.readd(node.Members, s.Replicas[id].Seen, s.W.Logged.Has(id), s.W.Discarded.Has(id)) == Leave {
				return "a discarded replica is never rebuilt"
			}
		}
	}
	return m.unavailable(s)
}

// unavailable returns the reason why a volume cannot start although its node can reach the witness
// and an in-sync replica.
func (m *stepper) unavailable(s world) string {
	if m.restore {
		return "" // a restored witness is refused
	}
	for n := range s.Nodes {
		node := s.Nodes[n]
		if !s.writes(n) || node.Off || node.NoAPI || node.Running || node.Plan == planStart {
			continue
		}
		if !s.W.Created {
			if s.reachesAll(n, s.W.Replicas) && m.rules.decide(s.self(n), s.W, true, s.view(n)).Action != Create {
				return "the volume cannot be created although all replicas are reachable"
			}
			continue
		}
		for id := range ID(MaxReplicas) {
			if s.W.InSync.Has(id) && s.reaches(n, id) && !(s.Kept && s.incomplete(id)) && m.rules.decide(s.self(n), s.W, true, s.view(n)).Action != Start {
				return "the volume does not start although the witness and an in-sync replica are reachable"
			}
		}
	}
	return ""
}
