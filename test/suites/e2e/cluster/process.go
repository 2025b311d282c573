package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A Process is a running program of the cluster.
type Process struct {
	Name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// start starts a program of the control plane in the background, with its output in the directory
// of logs.
func (c *Cluster) start(name, program string, args ...string) (*Process, error) {
	p := &Process{Name: name, log: filepath.Join(c.Logs(), name+".log")}
	return p, p.start(program, args)
}

// start starts a program on the node in the background, with its output in the directory of logs.
func (n *Node) start(name, program string, args ...string) (*Process, error) {
	p := &Process{Name: name + " of " + n.Name, log: filepath.Join(n.cluster.Logs(), n.Name+"-"+name+".log")}
	return p, n.machine.Do(func() error { return p.start(program, args) })
}

func (p *Process) start(program string, args []string) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.done = make(chan struct{})
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	go func() {
		_ = p.cmd.Wait() // ready reports its end, with the log
		close(p.done)
	}()
	return nil
}

// Kill kills the process and waits until it has ended.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.done
	return nil
}

var errEnded = errors.New("ended")

const readyInterval = 100 * time.Millisecond

// ready calls ask until it succeeds. It returns an error if the process or the context ends first.
func (p *Process) ready(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s %w: %s", p.Name, errEnded, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", p.Name, err, p.tail())
		case <-time.After(readyInterval):
		}
	}
}

// tail returns the end of the log.
func (p *Process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-3000):])
}
