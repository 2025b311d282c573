package replica

// A State is the state of a replica from a node's point of view.
type State uint8

// The states. An Unreachable replica is not connected. An Unreadable replica is connected, but its
// superblock cannot be read. A Foreign replica contains data other than this replica.
const (
	Unreachable State = iota
	Unreadable
	Blank
	Foreign
	Ours
)

// A Rebuild is the way that a replica is being brought up to date.
type Rebuild uint8

// Kinds of rebuilds. ByBitmap copies the regions that are marked in the log of the running mirror;
// InFull copies all regions.
const (
	NoRebuild Rebuild = iota
	ByBitmap
	InFull
)

// A Superblock is the record on a replica.
type Superblock struct {
	// Epoch is the epoch of the witness when the superblock was written.
	Epoch uint64
	// InSync is the in-sync set when the superblock was written. All other replicas had already
	// failed.
	InSync Set
	// Rebuild is the kind of a rebuild that has been started and may be incomplete.
	Rebuild Rebuild
}

// A Seen describes a replica from a node's point of view. Superblock is valid only if State is
// Ours.
type Seen struct {
	State      State
	Superblock Superblock
}

// A View describes all replicas from a node's point of view, by ID.
type View [MaxReplicas]Seen

// An Action is what a node does to stage a volume.
type Action uint8

// The actions. For Wait and Refuse, the node changes nothing. After Wait, the node tries again.
// After Refuse, an administrator must act, or the volume must be published again.
const (
	Wait Action = iota
	Refuse
	Create
	Start
)

// A Reason explains why a volume waits or is refused, or why a replica is not used.
type Reason uint8

// Reasons.
const (
	NoReason           Reason = iota
	WitnessUnreachable        // the API server does not respond
	Fenced                    // the witness names another publication
	WitnessOlder              // a superblock has a later epoch than the witness, which was restored
	ReplicaMissing            // required replicas are unreachable or unreadable
	ReplicaNotOurs            // a required replica is blank, or contains foreign data
	SplitBrain                // according to each replica's superblock, the other replica has failed
	NotRebuilt                // required replicas are not completely rebuilt
)

// A Decision describes how a node stages a volume. Before it starts anything, the node stores
// InSync and Logged in the witness.
type Decision struct {
	Action Action
	// InSync contains the replicas to start from, which are also the new in-sync set.
	InSync Set
	// Logged contains the replicas for which the log marks every region that may differ.
	Logged Set
	// ByBitmap and InFull contain the replicas to rebuild in the running mirror.
	ByBitmap, InFull Set
	// Left contains the replicas that must not be changed without an administrator's decision.
	Left Set
	// Reason is the reason why the volume waits or is refused. Because contains the replicas that
	// caused the decision.
	Reason  Reason
	Because Set
}

// Decide determines how self stages a volume. known reports whether the witness could be read.
func Decide(self Writer, w Witness, known bool, v View) Decision {
	switch {
	case !known:
		return Decision{Reason: WitnessUnreachable}
	case w.permits(self) != nil:
		return Decision{Action: Refuse, Reason: Fenced}
	}
	// A witness that was restored without its status looks like the witness of a new volume, so
	// check for later superblocks first.
	if later := v.where(w.Replicas, func(s Seen) bool { return s.State == Ours && s.Superblock.Epoch > w.Epoch }); later != 0 {
		return Decision{Action: Refuse, Reason: WitnessOlder, Because: later}
	}
	if !w.Created {
		return decideNew(w, v)
	}
	if lost := v.where(w.InSync, func(s Seen) bool { return s.State == Blank || s.State == Foreign }); lost != 0 {
		return Decision{Action: Refuse, Reason: ReplicaNotOurs, Because: lost}
	}
	current := v.where(w.InSync, func(s Seen) bool { return s.State == Ours && s.Superblock.Rebuild == NoRebuild })
	// The superblocks of all members are written before a mirror starts, and before the in-sync set
	// grows. If a replica has an earlier epoch than another replica, either its server has returned
	// with old data, or a start was interrupted.
	older := v.older(current)
	current &^= older
	accused := v.accused(current)
	start := current &^ accused
	switch {
	case start == 0 && current != 0:
		return Decision{Action: Refuse, Reason: SplitBrain, Because: current}
	case start == 0:
		if missing := v.where(w.InSync, func(s Seen) bool { return s.State != Ours }); missing != 0 {
			return Decision{Reason: ReplicaMissing, Because: missing}
		}
		return Decision{Action: Refuse, Reason: NotRebuilt, Because: w.InSync}
	}
	logged := w.Logged
	if w.Clean { // the replicas are equal now, and the mirror marks everything that it writes from now on
		logged |= v.where(w.InSync, func(s Seen) bool { return s.State != Ours || s.Superblock.Rebuild == NoRebuild }) &^ accused &^ older
	} else if start.Len() > 1 { // each replica has every acknowledged write, but the replicas may differ in other writes
		start = SetOf(start.IDs()[0])
	}
	d := Decision{Action: Start, InSync: start, Logged: logged &^ start}
	for _, id := range (w.Replicas &^ start).IDs() {
		switch Readd(start, v[id], d.Logged.Has(id), w.Discarded.Has(id)) {
		case AddByBitmap:
			d.ByBitmap |= SetOf(id)
		case AddInFull:
			d.InFull |= SetOf(id)
		case Leave:
			d.Left |= SetOf(id)
		case NotThere:
		}
	}
	return d
}

// decideNew makes the decision for a new volume, which has no data yet. A previous attempt to
// create the volume may have written a superblock.
func decideNew(w Witness, v View) Decision {
	if missing := v.where(w.Replicas, func(s Seen) bool { return s.State == Unreachable || s.State == Unreadable }); missing != 0 {
		return Decision{Reason: ReplicaMissing, Because: missing}
	}
	if foreign := v.where(w.Replicas, func(s Seen) bool { return s.State == Foreign }); foreign != 0 {
		return Decision{Action: Refuse, Reason: ReplicaNotOurs, Because: foreign}
	}
	return Decision{Action: Create, InSync: w.Replicas}
}

// A Return is the way that a replica returns to a running mirror.
type Return uint8

// The ways that a replica returns. With Leave, the replica is not changed until an administrator
// decides.
const (
	NotThere Return = iota
	AddByBitmap
	AddInFull
	Leave
)

// Readd decides how a replica that is not in sync returns to a mirror that consists of the replicas
// in running. logged and discarded report whether the witness lists the replica in Logged and in
// Discarded. The witness must not list the replica as in sync, because the replica is overwritten.
func Readd(running Set, s Seen, logged, discarded bool) Return {
	switch s.State {
	case Unreachable:
		return NotThere
	case Blank:
		return AddInFull
	case Ours:
		switch {
		case discarded || s.Superblock.Rebuild == InFull:
			return AddInFull
		case !s.Superblock.InSync.Contains(running) && s.Superblock.Rebuild == NoRebuild:
			return Leave // the replica may contain the only copy of some data
		case !logged:
			return AddInFull // the replica may differ in writes that are in no log
		}
		return AddByBitmap
	default:
		return Leave
	}
}

// where returns the replicas in set for which f returns true.
func (v *View) where(set Set, f func(Seen) bool) Set {
	var found Set
	for id := range ID(MaxReplicas) {
		if set.Has(id) && f(v[id]) {
			found |= SetOf(id)
		}
	}
	return found
}

// older returns the replicas in set that have an earlier epoch than another replica in set.
func (v *View) older(set Set) Set {
	var newest uint64
	for _, id := range set.IDs() {
		newest = max(newest, v[id].Superblock.Epoch)
	}
	return v.where(set, func(s Seen) bool { return s.Superblock.Epoch < newest })
}

// accused returns the replicas in set that have failed according to the superblock of another
// replica.
func (v *View) accused(set Set) Set {
	var accused Set
	for id := range ID(MaxReplicas) {
		if set.Has(id) {
			accused |= set &^ v[id].Superblock.InSync &^ SetOf(id)
		}
	}
	return accused
}
