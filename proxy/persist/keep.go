package persist

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/persist/identity"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// Saved calls that the target lacks stay in the saved file, next to the target's own calls, so that
// one missing object does not prevent others from being saved. This file contains the rules.

// lacking groups the saved calls that the target lacks by what happens to them.
type lacking struct {
	kept     []place // from another process of the target
	vanished []place // from this process, not removed by a call through this proxy
}

// sort classifies the calls in current that live lacks.
func (s *Saver) sort(current, live *Configuration, missing []place, seen changes) (l lacking) {
	c := compare(s.opts.Schema, current, live)
	another := current.Saved.Process != live.Saved.Process
	var made map[string]bool
	for _, p := range missing {
		call := c.describe(p.subsystem, p.call)
		release, kept := current.Saved.Kept[digest(p.call)]
		switch {
		case seen.removed(call):
		case call.Method == waitMethod && identities(s, live, &made)[s.identityKey(p)]:
			// The target's own calls already wait for this bdev. Earlier versions of the proxy
			// saved several waits for one bdev.
		case kept && release != live.Saved.Release && identities(s, live, &made)[s.identityKey(p)]:
			// The object has reappeared, and this release writes its call in another form.
		case (kept || another) && call.givesAccess() && call.exported().namesAny(seen.exports):
			// Calls through this proxy have set up or changed the export, so do not additionally
			// admit the hosts in the saved file.
		case kept || another:
			l.kept = append(l.kept, p)
		case call.namesAny(seen.names), !identity.LosesMembers(call.Method) && identities(s, live, &made)[s.identityKey(p)]: // a call changed the object
		default:
			l.vanished = append(l.vanished, p)
		}
	}
	return l
}

// identities returns the objects that the calls in a configuration create or change.
func identities(s *Saver, c *Configuration, cached *map[string]bool) map[string]bool {
	if *cached == nil {
		*cached = map[string]bool{}
		for _, p := range places(c) {
			(*cached)[s.identityKey(p)] = true
		}
	}
	return *cached
}

// identityKey returns equal keys for calls that create or set the same object, only one of which
// spdk_tgt can load.
func (s *Saver) identityKey(p place) string {
	e, err := entryOf(p.call)
	if err != nil {
		return ""
	}
	if object := identity.Of(s.opts.Schema, e.Method, e.Params); object != "" {
		return p.subsystem + " " + object
	}
	return p.subsystem + " " + compact(p.call)
}

// keep adds the listed calls of current to live. It inserts each call after the call that directly
// preceded it in current, and after all earlier calls that name the same objects. If live
// configures the same object differently, the kept call replaces live's call, unless a call through
// this proxy named the object. The result kept lists the calls that were added.
func (s *Saver) keep(current, live *Configuration, list []place, seen changes) (merged *Configuration, kept []place) {
	origin := live.Saved
	origin.Kept = map[string]string{}
	merged = &Configuration{Saved: origin}
	c := compare(s.opts.Schema, current, live)
	wanted := map[string][]place{}
	for _, p := range list {
		wanted[p.subsystem] = append(wanted[p.subsystem], p)
	}
	add := func(p place) {
		kept = append(kept, p)
		origin.Kept[digest(p.call)] = cmp.Or(current.Saved.Kept[digest(p.call)], current.Saved.Release)
	}
	have := map[string]bool{}
	for _, sub := range live.Subsystems {
		have[sub.Name] = true
		if len(wanted[sub.Name]) > 0 {
			sub.Calls = s.keepIn(c, sub, placesOf(current, sub.Name), wanted[sub.Name], seen, add)
		}
		merged.Subsystems = append(merged.Subsystems, sub)
	}
	for _, sub := range current.Subsystems { // subsystems without which the target was built
		if !have[sub.Name] && len(wanted[sub.Name]) > 0 {
			calls := []json.RawMessage{}
			for _, p := range wanted[sub.Name] {
				add(p)
				calls = append(calls, p.call)
			}
			merged.Subsystems = append(merged.Subsystems, Subsystem{Name: sub.Name, Calls: calls})
		}
	}
	return merged, kept
}

func placesOf(c *Configuration, subsystem string) []place {
	return slices.DeleteFunc(places(c), func(p place) bool { return p.subsystem != subsystem })
}

// keepIn implements keep for one subsystem. before contains the subsystem's calls in current.
func (s *Saver) keepIn(c comparison, sub Subsystem, before, wanted []place, seen changes, add func(place)) []json.RawMessage {
	calls := slices.Clone(sub.Calls)
	at := map[string][]int{}  // key → places in live
	made := map[string]int{}  // identity → place in live
	follow := map[int][]int{} // place in live, or -1 → calls of before that come after it
	for i, call := range calls {
		at[c.key(call)] = append(at[c.key(call)], i)
		made[s.identityKey(place{sub.Name, i, call})] = i
	}
	next, last, lastPlace := 0, -1, map[string]int{}
	for _, p := range before {
		call := c.describe(p.subsystem, p.call)
		if next < len(wanted) && wanted[next].index == p.index {
			next++
			if i, conflicts := made[s.identityKey(p)]; conflicts {
				if !s.named(p, seen) && !s.named(place{sub.Name, i, sub.Calls[i]}, seen) {
					calls[i] = p.call
					add(p)
				}
				continue
			}
			for _, n := range call.Names {
				if i, known := lastPlace[n.Value]; known {
					last = max(last, i)
				}
			}
			follow[last] = append(follow[last], p.index)
			add(p)
		} else if same := at[c.key(p.call)]; len(same) > 0 {
			last, at[c.key(p.call)] = same[0], same[1:]
		} else {
			continue
		}
		for _, n := range call.Names {
			if i, known := lastPlace[n.Value]; !known || i < last {
				lastPlace[n.Value] = last
			}
		}
	}
	byIndex := map[int]json.RawMessage{}
	for _, p := range before {
		byIndex[p.index] = p.call
	}
	var merged []json.RawMessage
	for i := -1; i < len(calls); i++ {
		if i >= 0 {
			merged = append(merged, calls[i])
		}
		for _, index := range follow[i] {
			merged = append(merged, byIndex[index])
		}
	}
	return merged
}

// named reports whether the object of a saved call was named, created or set through this proxy.
func (s *Saver) named(p place, seen changes) bool {
	e, err := entryOf(p.call)
	m, known := s.opts.Schema.Method(e.Method)
	if err != nil || !known {
		return false
	}
	objects, _ := s.opts.Schema.Names(e.Method, e.Params, maxNames)
	return seen.made[identity.Of(s.opts.Schema, e.Method, e.Params)] ||
		slices.ContainsFunc(objects, func(n rpcschema.Name) bool { return seen.names[n.Value] }) ||
		slices.ContainsFunc(m.Params, func(p *rpcschema.Param) bool { return p.Required && seen.names[scalar(e.Params[p.Name])] })
}

func isHost(n rpcschema.Name) bool { return n.Kind == "host-nqn" || n.Kind == "initiator" }

// givesAccess reports whether the call admits hosts to an object.
func (c Call) givesAccess() bool { return slices.ContainsFunc(c.Names, isHost) }

// exported returns the call without the names of hosts.
func (c Call) exported() Call {
	c.Names = slices.DeleteFunc(slices.Clone(c.Names), isHost)
	return c
}

// digest returns the key that identifies a call in Origin.Kept.
func digest(call json.RawMessage) string {
	sum := sha256.Sum256([]byte(compact(call)))
	return hex.EncodeToString(sum[:16])
}
