package replica

// A State is what a node sees of a replica.
type State uint8

// States. An unreachable replica is not connected; an unreadable one is connected, but its
// superblock cannot be read; a foreign one has something else there.
const (
	Unreachable State = iota
	Unreadable
	Blank
	Foreign
	Ours
)

// A Rebuild is how a replica is being brought up to date.
type Rebuild uint8

// Kinds of rebuilds. ByBitmap copies the chunks that are marked in the log of the running mirror;
// InFull copies all chunks.
const (
	NoRebuild Rebuild = iota
	ByBitmap
	InFull
)

// A Superblock is the record on a replica.
type Superblock struct {
	// Epoch is that of the witness when the superblock was written.
	Epoch uint64
	// InSync is the in-sync set when the superblock was written. The replica claims that all other
	// replicas have failed.
	InSync Set
	// Rebuild is the rebuild that was begun and is not known to be complete.
	Rebuild Rebuild
}

// A Seen is what a node sees of one replica. Superblock counts if State is Ours.
type Seen struct {
	State      State
	Superblock Superblock
}

// A View is what a node sees of all replicas, by ID.
type View [MaxReplicas]Seen

// An Action is what a node does to stage a volume.
type Action uint8

// Actions. Wait and Refuse change nothing. A node repeats its attempt after Wait; Refuse needs a
// person, or another publication.
const (
	Wait Action = iota
	Refuse
	Create
	Start
)

// A Reason is why a volume waits, is refused, or has a replica that is left alone.
type Reason uint8

// Reasons.
const (
	NoReason           Reason = iota
	WitnessUnreachable        // the API server does not answer
	Fenced                    // the witness names another publication
	WitnessOlder              // a superblock has a later epoch than the witness
	ReplicaMissing            // the replicas that are needed are unreachable or unreadable
	ReplicaNotOurs            // a replica that must be ours is blank, or has foreign data
	SplitBrain                // each replica claims that the other failed
	NotRebuilt                // the replicas that are needed are not completely rebuilt
)

// A Decision is what a node does to stage a volume. Before it starts anything, the node stores the
// witness with the new InSync.
type Decision struct {
	Action Action
	// InSync are the replicas to start from, and the new in-sync set.
	InSync Set
	// ByBitmap and InFull are the replicas to rebuild in the running mirror.
	ByBitmap, InFull Set
	// Left are the replicas that must not be changed without a person's decision.
	Left Set
	// Reason is why the volume waits or is refused, because of the replicas Because.
	Reason  Reason
	Because Set
}

// Decide returns what self does to stage a volume. known reports whether the witness could be read.
func Decide(self Writer, w Witness, known bool, v View) Decision {
	switch {
	case !known:
		return Decision{Reason: WitnessUnreachable}
	case w.permits(self) != nil:
		return Decision{Action: Refuse, Reason: Fenced}
	case !w.Created:
		return decideNew(w, v)
	}
	if later := v.where(w.Replicas, func(s Seen) bool { return s.State == Ours && s.Superblock.Epoch > w.Epoch }); later != 0 {
		return Decision{Action: Refuse, Reason: WitnessOlder, Because: later}
	}
	if lost := v.where(w.InSync, func(s Seen) bool { return s.State == Blank || s.State == Foreign }); lost != 0 {
		return Decision{Action: Refuse, Reason: ReplicaNotOurs, Because: lost}
	}
	current := v.where(w.InSync, func(s Seen) bool { return s.State == Ours && s.Superblock.Rebuild == NoRebuild })
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
	d := Decision{Action: Start, InSync: start}
	for _, id := range (w.Replicas &^ start).IDs() {
		switch Readd(start, v[id]) {
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

// decideNew decides for a volume without data. An attempt that ended may have written a superblock.
func decideNew(w Witness, v View) Decision {
	if missing := v.where(w.Replicas, func(s Seen) bool { return s.State == Unreachable || s.State == Unreadable }); missing != 0 {
		return Decision{Reason: ReplicaMissing, Because: missing}
	}
	if foreign := v.where(w.Replicas, func(s Seen) bool { return s.State == Foreign }); foreign != 0 {
		return Decision{Action: Refuse, Reason: ReplicaNotOurs, Because: foreign}
	}
	return Decision{Action: Create, InSync: w.Replicas}
}

// A Return is how a replica returns to a running mirror.
type Return uint8

// Returns. A replica with Leave is not changed: a person decides.
const (
	NotThere Return = iota
	AddByBitmap
	AddInFull
	Leave
)

// Readd decides how a replica that is not in sync returns to a mirror whose legs running are.
// The witness must not list the replica when this is called: its content is overwritten.
func Readd(running Set, s Seen) Return {
	switch s.State {
	case Unreachable:
		return NotThere
	case Blank:
		return AddInFull
	case Ours:
		switch {
		case s.Superblock.Rebuild == InFull:
			return AddInFull
		case !s.Superblock.InSync.Contains(running) && s.Superblock.Rebuild == NoRebuild:
			return Leave // it may have the only copy of something
		}
		return AddByBitmap
	default:
		return Leave
	}
}

// where returns the replicas of set for which f is true.
func (v *View) where(set Set, f func(Seen) bool) Set {
	var found Set
	for id := range ID(MaxReplicas) {
		if set.Has(id) && f(v[id]) {
			found |= SetOf(id)
		}
	}
	return found
}

// accused returns the replicas of set that another one of set claims have failed.
func (v *View) accused(set Set) Set {
	var accused Set
	for id := range ID(MaxReplicas) {
		if set.Has(id) {
			accused |= set &^ v[id].Superblock.InSync &^ SetOf(id)
		}
	}
	return accused
}
