package replica

// heal adds the steps that rebuild and re-add replicas.
func (m *stepper) heal(s world, n int) {
	node := s.Nodes[n]
	slots := node.Members | s.W.Replicas
	if m.rules.dropSlot && slots.Len() > 2 {
		slots = node.Members | SetOf(2)
	}
	if slots != node.Slots && !node.NoAPI {
		t := s
		t.Nodes[n].Slots = slots
		if slots != node.Members {
			t.diskLog(n)
		}
		m.add(t, slotsChanged, n, 0, "")
	}
	if have := node.Members | node.Rebuilding; node.Hold == free && node.Plan == noPlan && !node.NoAPI && s.W.Held != have {
		if w, err := s.W.Hold(s.self(n), have); err == nil {
			t := s
			t.W = w
			m.add(t, heldStored, n, 0, "")
		}
	}
	if node.Rebuilding != 0 {
		id := node.Rebuilding.IDs()[0]
		t := s
		t.Nodes[n].Rebuilding, t.Nodes[n].Full = 0, false
		if !s.reaches(n, id) {
			t.Nodes[n].Failing &^= SetOf(id)
			m.add(t, rebuildStopped, n, id, "")
			return
		}
		source := node.Members.IDs()[0]
		if node.Write || !s.reaches(n, source) {
			return
		}
		t.Nodes[n].Members |= SetOf(id)
		if node.Full || node.Bit {
			t.copyChunk(source, id)
		}
		violation := ""
		switch {
		case !s.writes(n):
		case s.Replicas[source].Lacks:
			violation = "a replica that lacks an acknowledged write is the source of a rebuild"
		case t.Replicas[id].Lacks:
			violation = "a rebuilt replica lacks an acknowledged write"
		case t.differing(t.Nodes[n].Members):
			violation = "a rebuilt replica differs"
		}
		m.add(t, rebuilt, n, id, violation)
		return
	}
	if node.Hold != free || node.Write || node.Plan != noPlan || node.NoAPI || !s.writes(n) {
		return
	}
	for _, id := range (s.W.Replicas & node.Slots &^ node.Members).IDs() {
		if s.W.InSync.Has(id) && !m.rules.listEarly || !s.reaches(n, id) {
			continue
		}
		t := s
		w, err := s.W.Hold(s.self(n), node.Members|SetOf(id))
		if err != nil {
			continue
		}
		t.W = w
		rebuild := ByBitmap
		switch m.rules.readd(node.Members, s.Replicas[id].Seen, s.W.Logged.Has(id), s.W.Discarded.Has(id)) {
		case AddByBitmap:
		case AddInFull:
			rebuild, t.Nodes[n].Full = InFull, true
		case Leave, NotThere:
			continue
		}
		t.Replicas[id].Seen = Seen{State: Ours, Superblock: Superblock{Epoch: m.epoch(&s, n), InSync: node.Members, Rebuild: rebuild}}
		t.Replicas[id].Bit, t.Replicas[id].Used = node.Bit, node.Generation
		t.Nodes[n].Rebuilding = SetOf(id)
		t.Nodes[n].Dropped &^= SetOf(id)
		if m.rules.listEarly {
			if w, err := m.rules.setInSync(t.W, s.self(n), node.Members|SetOf(id)); err == nil {
				t.W = w
				t.Replicas[id].Seen.Superblock.Rebuild = NoRebuild
			}
		}
		m.add(t, rebuildBegun, n, id, "")
	}
}

// copyChunk copies a chunk from one replica to another. After the copy, a write in flight is the
// same on both replicas.
func (s *world) copyChunk(from, to ID) {
	if from == to {
		return
	}
	source := s.Replicas[from]
	s.Replicas[to].Content, s.Replicas[to].Lacks, s.Replicas[to].Discarded = source.Content, source.Lacks, source.Discarded
	for n := range s.Nodes {
		data := &s.Nodes[n].WriteData
		*data &^= SetOf(to)
		if data.Has(from) {
			*data |= SetOf(to)
		}
	}
}

// keepReplica adds the steps of an administrator who keeps one replica: the publication ends, the
// replica's exports end, and the witness records the decision.
func (m *stepper) keepReplica(s world) {
	if !s.Keeping {
		t := s
		t.W, t.Keeping = m.rules.publish(s.W, ""), true
		m.fault(t, unpublished, 0, 0)
		return
	}
	for id := range ID(MaxReplicas) {
		r := s.Replicas[id]
		w, err := m.rules.keep(s.W, id)
		if err != nil || w == s.W || r.Cut || r.Host != 0 && r.Host != uint8(s.W.Writer.Generation) {
			continue
		}
		t := s
		t.W, t.Kept, t.Keeping = w, true, false
		for other := range t.Replicas {
			if t.Replicas[other].Exists {
				t.Replicas[other].Lacks, t.Replicas[other].Discarded = true, true
			}
		}
		// The administrator accepts the loss of the writes that the replica lacks. A replica that
		// is being rebuilt contains a mixture of old and new data.
		t.Replicas[id].Lacks, t.Replicas[id].Discarded = s.incomplete(id), false
		m.add(t, kept, 0, id, "")
	}
}

// incomplete reports whether a replica's superblock records an unfinished rebuild.
func (s *world) incomplete(id ID) bool { return s.Replicas[id].Seen.Superblock.Rebuild != NoRebuild }

// onlyDiscarded reports whether all replicas of a fenced node's mirror are discarded. An
// administrator has accepted the loss of writes to these replicas.
func (s *world) onlyDiscarded(n int) bool {
	for _, id := range s.Nodes[n].Members.IDs() {
		if !s.Replicas[id].Discarded {
			return false
		}
	}
	return !s.writes(n)
}
