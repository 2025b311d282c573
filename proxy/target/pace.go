package target

import "time"

// SPDK executes all calls that it finds at its sockets before it does anything
// else: answers other calls, or serves I/O on that core. Most calls take
// microseconds, some, such as a list of all bdevs, tens of milliseconds; and 256
// of these, sent together, would have everybody wait for seconds. So calls of one
// user go out in bursts: a round ends when the probe, sent after them, was
// answered, and how long that took tells what the others had to wait. When it
// takes long, the bursts become smaller; when it does not, longer. What SPDK has
// not answered in its round, since it waits for a disk, does not count in the next.
const (
	firstBurst = 16 // so many of a user's calls at once may go without a look at how long they take
	minBurst   = 2  // one that is executed, and one that waits for it

	quickRound = 16 * time.Millisecond // the probe takes up to 8 ms by itself
	slowRound  = 50 * time.Millisecond
	// minRound bounds how often the probe is sent.
	minRound = 4 * time.Millisecond
)

// A pace says how many calls of one user may go out in one round.
type pace struct {
	burst   int
	round   uint64
	largest int    // burst of this round
	taken   bool   // by start, which goes on until nextRound says no
	start   func() // nil: rounds are somebody else's matter
}

// sent is told that a user has so many calls under way that were sent in this round.
func (p *pace) sent(inRound int) {
	p.largest = max(p.largest, inRound)
	if inRound >= min(firstBurst, p.burst) && !p.taken && p.start != nil {
		p.taken = true
		p.start()
	}
}

// nextRound begins a round, after one that took so long. It tells whether the
// pace needs to be taken any longer.
func (q *queue) nextRound(took time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &q.pace
	quiet := p.largest < min(firstBurst, p.burst) && q.runnable.n == 0
	switch {
	case took > slowRound:
		p.burst = max(minBurst, min(p.burst, p.largest)/2)
	case took < quickRound:
		p.burst = min(2*p.burst, max(firstBurst, q.limits.Total))
	}
	p.round++
	p.largest = 0
	p.taken = !quiet
	if quiet {
		p.burst = firstBurst
	}
	q.advance()
	return p.taken
}

// stopPacing lets everything out that waits for a round: there will be none.
func (q *queue) stopPacing() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.burst = q.limits.Total
	q.advance()
}

// measureRounds measures rounds, as long as users have many calls under way.
func (t *Target) measureRounds() {
	for {
		took := t.timedProbe() // a target that is away is as slow
		if !t.queue.nextRound(took) {
			return
		}
		select {
		case <-time.After(minRound - took):
		case <-t.stopped:
			t.queue.stopPacing()
			return
		}
	}
}
