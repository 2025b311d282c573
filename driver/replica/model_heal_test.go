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
		switch m.rules.readd(node.Members, s.Replicas[id].Seen, s.W.Logged.Has(id)) {
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
	s.Replicas[to].Content, s.Replicas[to].Lacks = s.Replicas[from].Content, s.Replicas[from].Lacks
	for n := range s.Nodes {
		data := &s.Nodes[n].WriteData
		*data &^= SetOf(to)
		if data.Has(from) {
			*data |= SetOf(to)
		}
	}
}
