package target

import "time"

// SPDK executes all calls that it finds on its sockets before it does any other work, such as
// responding to other calls or serving I/O on that core. Most calls take microseconds. Some, such
// as a list of all bdevs, take tens of milliseconds, and 256 of them together would delay all other
// work by seconds. Therefore, the proxy sends each user's calls in bursts, one in each round. A
// round ends when SPDK responds to a probe that was sent after the burst, so its duration shows how
// long other calls had to wait. After a slow round, the bursts become smaller; after a quick round,
// they become larger. Calls that get no response within their round, for example because they wait
// for a disk, do not count in the next round.
const (
	firstBurst = 16 // calls that a user may have in flight before any round has been measured
	minBurst   = 2  // one call that is being executed, and one that is waiting

	quickRound = 16 * time.Millisecond // the probe alone takes up to 8 ms
	slowRound  = 50 * time.Millisecond
	// minRound is the minimum time between two probes.
	minRound = 4 * time.Millisecond
)

// A pace determines how many calls of one user may be sent in one round. It is guarded by queue.mu.
type pace struct {
	burst     int
	round     uint64
	largest   int    // the largest number of calls that any user sent in this round
	measuring bool   // start has been called, and nextRound has not returned false since then
	start     func() // starts measuring; nil if a test calls nextRound itself
}

// noteSent records that inRound of a user's running calls were sent in this round.
func (p *pace) noteSent(inRound int) {
	p.largest = max(p.largest, inRound)
	if inRound >= min(firstBurst, p.burst) && !p.measuring && p.start != nil {
		p.measuring = true
		p.start()
	}
}

// nextRound begins a new round, and reports whether rounds must still be measured. took is the
// duration of the previous round.
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
	p.measuring = !quiet
	if quiet {
		p.burst = firstBurst
	}
	q.advance()
	return p.measuring
}

// stopPacing removes the limit on bursts, because no further round will begin.
func (q *queue) stopPacing() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.burst = q.limits.Total
	q.advance()
}

// measureRounds measures rounds as long as users have many calls in flight.
func (t *Target) measureRounds() {
	for {
		took := t.timedProbe() // an unreachable target counts as slow
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
