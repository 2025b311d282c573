package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// hostile is the source address of hostile clients. It differs from the tenants' address, because
// the proxy limits failed logins by address.
var hostile = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}

func (w *testbed) dial() (net.Conn, error) {
	return (&net.Dialer{LocalAddr: hostile, Timeout: 10 * time.Second}).Dial("tcp", w.address)
}

// connectTries is the maximum number of times that a client tries to connect. The proxy closes
// connections whose handshake takes too long, which can happen on a busy machine.
const connectTries = 10

func (w *testbed) dialTLS() (c *tls.Conn, err error) {
	for range connectTries {
		if c, err = w.dialTLSOnce(); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (w *testbed) dialTLSOnce() (*tls.Conn, error) {
	conn, err := w.dial()
	if err != nil {
		return nil, err
	}
	c := tls.Client(conn, &tls.Config{RootCAs: w.ca, ServerName: "127.0.0.1"})
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if err := c.Handshake(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// An attack is sent unchanged, and the response must have one of the statuses. If there are no
// statuses, the proxy may either respond or close the connection.
type attack struct {
	raw      string
	statuses []int
}

func request(user, password, body string, headers ...string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Length: %d\r\n%s\r\n%s",
		base64.StdEncoding.EncodeToString([]byte(user+":"+password)), len(body), strings.Join(headers, ""), body)
}

// A message is the body of a request that a hostile tenant sends by POST or on a stream.
type message struct {
	text     string
	statuses []int
}

// messages returns the messages that hostile tenants send.
func (w *testbed) messages() []message {
	victim := w.tenantsOf[len(w.tenantsOf)-1]
	bad := func(text string, statuses ...int) message { return message{text, statuses} }
	return []message{
		bad(`{"id":1,"method":"spdk_kill_instance","params":{"sig_name":"SIGKILL"}}`, 403),
		bad(`{"id":1,"method":"bdev_lvol_delete_lvstore","params":{"lvs_name":"`+victim.lvstore()+`"}}`, 403),
		bad(`{"id":1,"method":"bdev_lvol_delete_lvstore","method":"spdk_get_version","params":{"lvs_name":"`+victim.lvstore()+`"}}`, 400),
		bad(`{"id":1,"method":"bdev_get_bdevs","params":{"name":"`+victim.lvstore()+`/x"}}{"id":2,"method":"spdk_kill_instance"}`, 400),
		bad(`[{"id":1,"method":"bdev_lvol_get_lvols","params":{"lvs_name":"`+victim.lvstore()+`"}},[{"id":2,"method":"spdk_kill_instance"}]]`, 200),
		bad(strings.Repeat("[", 100_000), 400, 413),
		bad(`{"id":1,"method":"`+strings.Repeat("m", 200<<10)+`"}`, 400),
		bad("\x00\xff\xfe", 400), bad("", 400), bad("null", 400),
	}
}

// attacks returns the requests that hostile tenants, or clients without a password, send.
func (w *testbed) attacks() (list []attack) {
	for _, m := range w.messages() {
		list = append(list, attack{request(hostileUser, passwordOf(hostileUser), m.text), m.statuses})
	}
	return append(list,
		attack{request(hostileUser, passwordOf(hostileUser), "", "Transfer-Encoding: chunked\r\n"), []int{400, 408}},
		attack{request(hostileUser, "guess", `{"id":1,"method":"spdk_get_version"}`), []int{401, 429}},
		attack{request("nobody", "guess", `{"id":1,"method":"spdk_get_version"}`), []int{401, 429}},
		attack{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\nAuthorization: Basic x\r\n\r\n", []int{401, 413, 429}},
		attack{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil},
		attack{"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", []int{431}},
		attack{"\x16\x03\x01" + strings.Repeat("\xff", 500), nil},
	)
}

// attack sends about ten hostile requests per second, some of them without TLS.
func (w *testbed) attack(ctx context.Context) {
	list, messages := w.attacks(), w.messages()
	for ctx.Err() == nil {
		a, n := list[rand.N(len(list))], rand.N(10)
		switch {
		case n == 0:
			w.sendWithoutTLS(a.raw)
		case n == 1:
			w.hangUp(a.raw)
		case n < 6 && w.over != overPOST || w.over == overStream:
			w.sendOnStream(messages[rand.N(len(messages))])
		default:
			w.send(a)
		}
		time.Sleep(time.Duration(rand.N(150)) * time.Millisecond)
	}
}

func (w *testbed) send(a attack) {
	conn, err := w.dialTLS()
	if err != nil {
		w.book.wrong("a hostile client cannot connect: %v", err)
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, a.raw) // the proxy may respond before it has read everything
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		if a.statuses != nil {
			w.book.wrong("no response to %.80q: %v", a.raw, err)
		}
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		w.book.wrong("an incomplete response to %.80q: %v", a.raw, err)
	}
	w.expectRefusal(a.raw, a.statuses, resp.StatusCode)
}

// expectRefusal checks the status of a response to an attack.
func (w *testbed) expectRefusal(sent string, statuses []int, status int) {
	// 502 means that nothing was executed, so the attack has failed.
	if statuses != nil && !slices.Contains(append(statuses[:len(statuses):len(statuses)], http.StatusBadGateway), status) {
		w.book.wrong("status %d to %.80q", status, sent)
	}
	w.book.count("attack answered")
}

func (w *testbed) sendWithoutTLS(raw string) {
	conn, err := w.dial()
	if err != nil {
		w.book.wrong("a hostile client cannot connect: %v", err)
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, raw)
	_, _ = io.Copy(io.Discard, conn)
	w.book.count("garbage")
}

// hangUp closes the connection in the middle of a request.
func (w *testbed) hangUp(raw string) {
	conn, err := w.dialTLS()
	if err != nil {
		w.book.wrong("a hostile client cannot connect: %v", err)
		return
	}
	_, _ = io.WriteString(conn, raw[:rand.N(len(raw)+1)])
	_ = conn.NetConn().Close()
	w.book.count("hung up")
}

// crawl runs slow clients. Some send one byte at a time, some stop in the middle of a body, some do
// not read their responses, and some send nothing. The proxy must disconnect each of them.
func (w *testbed) crawl(ctx context.Context) {
	list := request(hostileUser, passwordOf(hostileUser), `{"id":1,"method":"bdev_lvol_get_lvols"}`)
	half := request(hostileUser, passwordOf(hostileUser), strings.Repeat(" ", 1000))
	dial := func() (net.Conn, error) { return w.dialTLS() }
	kinds := map[string]slowClient{
		"slow header": {dial, func(c net.Conn) error { return drip(c, list) }},
		"half a body": {dial, func(c net.Conn) error { _, err := io.WriteString(c, half[:len(half)-500]); return err }},
		"deaf":        {dial, func(c net.Conn) error { _, err := io.WriteString(c, strings.Repeat(list, 50)); return err }},
		"silent":      {dial, func(net.Conn) error { return nil }},
	}
	if w.over == overPOST {
		w.runSlowClients(ctx, kinds)
		return
	}
	maps.Copy(kinds, w.slowStreams())
	w.runSlowClients(ctx, kinds)
}

// A slowClient connects, and starts a request that it does not finish.
type slowClient struct {
	dial  func() (net.Conn, error)
	begin func(net.Conn) error
}

func (w *testbed) runSlowClients(ctx context.Context, kinds map[string]slowClient) {
	var crawlers sync.WaitGroup
	for name, kind := range kinds {
		for range 5 {
			crawlers.Go(func() {
				for ctx.Err() == nil {
					conn, err := kind.dial()
					if err != nil {
						w.book.wrong("a slow client (%s) cannot connect: %v", name, err)
						return
					}
					_ = conn.SetDeadline(time.Now().Add(time.Minute))
					if kind.begin(conn) == nil && !strings.HasPrefix(name, "deaf") {
						if _, err := io.Copy(io.Discard, conn); err != nil && isTimeout(err) {
							w.book.wrong("a slow client (%s) was not disconnected within a minute", name)
						}
					} else {
						time.Sleep(2 * time.Second)
					}
					_ = conn.Close()
					w.book.count("slow")
				}
			})
		}
	}
	crawlers.Wait()
}

func drip(c net.Conn, text string) error {
	for i := range len(text) {
		if _, err := io.WriteString(c, text[i:i+1]); err != nil {
			return nil // disconnected, as expected
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
