package stream

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkOutput measures the CPU time per response, and the number of responses per write, if
// SPDK responds to 64 calls at the same time. Each goroutine works for a few microseconds before it
// adds its response.
func BenchmarkOutput(b *testing.B) {
	const calls = 64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer func() { _ = l.Close() }()
	go func() {
		peer, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(io.Discard, peer)
		}
	}()
	over, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	defer func() { _ = over.Close() }()
	var writes atomic.Int64
	o := output{write: func(text []byte) error {
		writes.Add(1)
		_, err := over.Write(text)
		return err
	}}
	text := [][]byte{make([]byte, 4), make([]byte, 200)}
	var woken [calls]chan *expected
	var waiting sync.WaitGroup
	for i := range woken {
		woken[i] = make(chan *expected, 1)
		defer close(woken[i])
		go func() {
			for e := range woken[i] {
				work(10 * time.Microsecond)
				o.add(response{text, waiting.Done}, e, func() {}, func() { b.Error("cannot write") })
			}
		}()
	}
	began := processTime()
	for sent := 0; b.Loop(); sent++ {
		if sent%calls == 0 {
			waiting.Wait()
		}
		waiting.Add(1)
		e := &expected{}
		o.expect(e)
		woken[sent%calls] <- e
	}
	waiting.Wait()
	took := processTime() - began
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/float64(writes.Load()), "responses/write")
}

// work uses CPU time for the duration d.
func work(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
