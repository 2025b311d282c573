package proxy

import (
	"encoding/json"
	"net/http"
	"runtime"
)

// A batch with the header batchHeader: concurrentBatch has calls that do not depend on each other. The proxy makes all of
// them at once, and sends each answer as soon as it can. Its answer has the same header, so that a client knows that the
// proxy does so.
const (
	batchHeader     = "Spdkgate-Batch"
	concurrentBatch = "concurrent"
)

// asksForConcurrency reports whether a request has the header. If so, the answer gets it, too.
func asksForConcurrency(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get(batchHeader) != concurrentBatch {
		return false
	}
	w.Header()[batchHeader] = []string{concurrentBatch}
	return true
}

// An ended is a call of a concurrent batch that has its answer.
type ended struct {
	call   *call
	result json.RawMessage
	err    error
}

// serveConcurrently makes all calls of a batch at once. Answers that arrive together are sent together, after the entries
// of their calls are in the log.
func (s *Server) serveConcurrently(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) {
	answers := make(chan ended, len(x.calls))
	for _, c := range x.calls {
		go func() {
			result, err := s.perform(r.Context(), now, c)
			answers <- ended{c, result, err}
		}()
	}
	reply := streamedReply{w: w, left: len(x.calls)}
	together := make([]*call, 0, len(x.calls))
	for reply.left > 0 {
		together = together[:0]
		for e, more := <-answers, true; more; e, more = next(answers) {
			e.call.noteAnswer(e.result, e.err)
			x.reserved += s.memory.Add(x.sender.user, len(e.result))
			s.audit(e.call)
			together = append(together, e.call)
		}
		switch {
		case reply.begun:
			s.clients.NextPart(connOf(r))
		case s.inFlight.isDraining():
			w.Header().Set("Connection", "close")
		}
		reply.write(together)
		s.releaseSent(x, together)
	}
}

// releaseSent releases the memory of results that were sent, while other calls of the batch are still running.
func (s *Server) releaseSent(x *exchange, sent []*call) {
	n := 0
	for _, c := range sent {
		n += len(c.answered.result)
		c.answered.result = nil
	}
	x.reserved = s.memory.Shrink(x.sender.user, x.reserved, x.reserved-n)
	if n >= longResult {
		s.target.MemoryReleased()
	}
}

// longResult is the length in bytes from which the release of a result may let a waiting call start.
const longResult = 64 << 10

// next returns the next call that has its answer, if there is one now. SPDK sends the answers to calls that arrived together
// at the same time, so it lets the goroutines run that have them.
func next(answers <-chan ended) (ended, bool) {
	for range 2 {
		select {
		case e := <-answers:
			return e, true
		default:
			runtime.Gosched()
		}
	}
	return ended{}, false
}

// A streamedReply is the answer to a concurrent batch, of which parts can be sent.
type streamedReply struct {
	w     http.ResponseWriter
	left  int  // calls without an answer
	begun bool // a part was sent
}

// write sends the answers of calls. The last ones complete the reply.
func (r *streamedReply) write(calls []*call) {
	var parts [][]byte
	for _, c := range calls {
		if !c.asked.notification {
			parts = append(append(parts, []byte{separator(len(parts) + truth(r.begun))}), c.parts()...)
		}
	}
	r.left -= len(calls)
	switch {
	case r.left == 0 && !r.begun && len(parts) == 0:
		send(r.w, http.StatusNoContent, nil)
		return
	case r.left == 0 && !r.begun:
		send(r.w, http.StatusOK, append(parts, []byte("]")))
		return
	case len(parts) == 0 && r.left > 0:
		return
	case r.left == 0:
		parts = append(parts, []byte("]\n"))
	}
	if !r.begun {
		r.begun = true
		r.w.Header().Set("Content-Type", "application/json")
		r.w.WriteHeader(http.StatusOK)
	}
	for _, part := range parts {
		if _, err := r.w.Write(part); err != nil {
			return // the client disconnected; the log has the outcome
		}
	}
	if r.left > 0 {
		_ = http.NewResponseController(r.w).Flush()
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
