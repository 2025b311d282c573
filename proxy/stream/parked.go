package stream

import "sync/atomic"

// parked is a pool of goroutines that wait for functions to run. It saves time: a call needs a
// larger stack than a new goroutine has, and a goroutine that has executed a call keeps its larger
// stack.
type parked struct {
	next  chan func()
	done  chan struct{} // closed by end
	count atomic.Int32
}

// maxParked is the maximum number of waiting goroutines, which limits the memory that they occupy.
const maxParked = 64

func newParked() *parked { return &parked{next: make(chan func()), done: make(chan struct{})} }

// run runs f in a waiting goroutine or, if there is none, in a new goroutine.
func (p *parked) run(f func()) {
	select {
	case p.next <- f:
	default:
		go p.loop(f)
	}
}

func (p *parked) loop(f func()) {
	for {
		f()
		if p.count.Add(1) > maxParked {
			p.count.Add(-1)
			return
		}
		select {
		case f = <-p.next:
			p.count.Add(-1)
		case <-p.done:
			return
		}
	}
}

// end makes each goroutine end as soon as it is idle. run may still be called.
func (p *parked) end() { close(p.done) }
