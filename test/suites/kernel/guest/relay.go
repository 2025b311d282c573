package main

import (
	"errors"
	"io"
	"net"
	"sync"
)

// A relay is a path to a target. It forwards connections from its own address to the target's
// address. The path can be cut in two ways.
type relay struct {
	net.Listener
	to string

	mu    sync.Mutex
	cut   cut
	conns []net.Conn
	heal  chan struct{} // closed when a path that dropped its data is working again
}

// A cut determines what happens to data on a path.
type cut int

const (
	whole   cut = iota
	refuses     // close connections, including new ones
	drops       // drop all data without notifying either side
)

func newRelay(to string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{Listener: l, to: to}
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go r.serve(c)
			}
		}
	}()
	return r, nil
}

func (r *relay) port() string {
	_, port, _ := net.SplitHostPort(r.Addr().String())
	return port
}

// set changes the path's state. All connections through the path end, unless data is to be dropped
// from now on.
func (r *relay) set(c cut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = c
	if c == drops {
		r.heal = make(chan struct{})
		return
	}
	if r.heal != nil {
		close(r.heal)
		r.heal = nil
	}
	for _, conn := range r.conns {
		_ = conn.Close()
	}
	r.conns = nil
}

func (r *relay) serve(client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	refused, heal := r.cut == refuses, r.heal
	r.mu.Unlock()
	if refused {
		return
	}
	if heal != nil {
		<-heal
		return
	}
	target, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer target.Close()
	r.mu.Lock()
	r.conns = append(r.conns, client, target)
	r.mu.Unlock()
	go func() {
		defer client.Close()
		r.copy(target, client)
	}()
	r.copy(client, target)
}

// copy forwards data in one direction until the connection ends.
func (r *relay) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		heal := r.heal
		r.mu.Unlock()
		if heal != nil {
			<-heal
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
