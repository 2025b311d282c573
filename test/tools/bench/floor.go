package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A floor is a process that only forwards calls to the target's socket. It serves calls with a
// net/http handler, and also on a TLS connection with one call per line. Its cost is a lower bound
// for the cost of any proxy.
type floor struct {
	cmd    *exec.Cmd
	url    string
	stream string // address
}

// startFloor starts a floor with a proxy's certificate.
func startFloor(ctx context.Context, socket string, p *proxy) (*floor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &floor{cmd: exec.CommandContext(ctx, self, "-floor", socket, "-certificate", p.dir)}
	f.cmd.Stderr = os.Stderr
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the floor: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the floor: %w", err), f.cmd.Wait())
	}
	post, stream, _ := strings.Cut(strings.TrimSpace(line), " ")
	f.url, f.stream = "https://"+post+"/", stream
	return f, nil
}

func (f *floor) stop() error { return end(f.cmd) }

func (f *floor) cpu() time.Duration { return cpuTime(f.cmd) }

// measurePosts measures POST requests to the floor, which uses the certificate of the proxy p.
func (f *floor) measurePosts(ctx context.Context, p *proxy, inFlight int, span time.Duration) (figures, error) {
	client, err := dialLean(ctx, f.url, user, password, p.ca, inFlight)
	if err != nil {
		return figures{}, err
	}
	defer func() { _ = client.Close() }()
	return measureServer(ctx, client, f.cpu, version, inFlight, span)
}

// measureStream measures calls on a stream to the floor.
func (f *floor) measureStream(ctx context.Context, p *proxy, inFlight int, span time.Duration) (figures, error) {
	client, err := dialLines(ctx, f.stream, p.ca)
	if err != nil {
		return figures{}, err
	}
	return measureStream(ctx, client, f.cpu, inFlight, span)
}

// runFloor serves until ctx ends.
func runFloor(ctx context.Context, path, dir string) error {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}}
	posts, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return err
	}
	streams, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return err
	}
	socket := spdkrpc.NewSocket(path)
	socket.SetLimits(jsonrpc.LimitsV2605)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = forward(r.Context(), socket, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = w.Write(body)
	})}
	go func() { _ = server.Serve(posts) }()
	go func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			go forwardLines(ctx, socket, conn)
		}
	}()
	fmt.Println(posts.Addr(), streams.Addr())
	<-ctx.Done()
	return errors.Join(server.Close(), streams.Close(), socket.Close())
}

// forward makes a call and returns the text of the response.
func forward(ctx context.Context, socket *spdkrpc.Socket, request []byte) ([]byte, error) {
	var call struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	if err := json.Unmarshal(request, &call); err != nil {
		return nil, err
	}
	var params any
	if call.Params != nil {
		params = call.Params
	}
	var result json.RawMessage
	if err := socket.Call(ctx, call.Method, params, &result); err != nil {
		return nil, err
	}
	text := append([]byte(`{"jsonrpc":"2.0","id":`), call.ID...)
	text = append(append(text, `,"result":`...), result...)
	return append(text, "}\n"...), nil
}

// forwardLines makes the calls on a connection concurrently.
func forwardLines(ctx context.Context, socket *spdkrpc.Socket, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var writing sync.Mutex
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		go func() {
			text, err := forward(ctx, socket, line)
			if err != nil {
				_ = conn.Close()
				return
			}
			writing.Lock()
			defer writing.Unlock()
			_, _ = conn.Write(text)
		}()
	}
}

// dialLines connects to a floor's stream.
func dialLines(ctx context.Context, address string, ca *x509.CertPool) (*streamClient, error) {
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca, ServerName: "localhost"}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(conn)
	return newStreamClient(func(text []byte) error {
		_, err := conn.Write(append(text, '\n'))
		return err
	}, func() ([]byte, error) { return lines.ReadBytes('\n') }, conn.Close), nil
}
