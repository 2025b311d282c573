package stream

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestParkedGoroutinesAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newParked()
		for range 2 {
			var running, all sync.WaitGroup
			hold := make(chan struct{})
			for range 3 * maxParked {
				running.Add(1)
				all.Add(1)
				p.run(func() {
					defer all.Done()
					running.Done()
					<-hold
				})
			}
			running.Wait() // until all of them run concurrently
			close(hold)
			all.Wait()
			synctest.Wait()
			assert.EqualValues(t, maxParked, p.count.Load(), "the others have ended")
		}
		p.end()
		done := make(chan struct{})
		p.run(func() { close(done) })
		<-done
	}) // fails if a goroutine still exists
}
