package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A request is a message to a keeper, which is a process that stores keys in a Folder on behalf of
// a proxy. The keeper runs as spdk_tgt's user, because SPDK accepts only files of its own user,
// whereas the proxy runs as another user. The proxy sends requests over a UNIX socket, one per
// connection.
type request struct {
	Do     string `json:"do"` // place, remove or list
	Name   string `json:"name,omitempty"`
	Secret string `json:"secret,omitempty"`
}

type reply struct {
	Outcome Outcome  `json:"outcome,omitempty"`
	Listing *Listing `json:"listing,omitempty"`
	Error   string   `json:"error,omitempty"`
}

const (
	requestTimeout   = 5 * time.Second
	maxRequestLength = 4 << 10
	maxReplyLength   = 16 << 20
)

// Keep reads a request from conn, executes it, and writes the reply. It returns the error in the
// reply, if any.
func Keep(conn io.ReadWriter, folder *Folder) error {
	var q request
	dec := json.NewDecoder(io.LimitReader(conn, maxRequestLength))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return errors.New("the request is malformed") // err may contain a secret
	}
	var r reply
	var err error
	switch q.Do {
	case "place":
		if err = CheckSecret(q.Secret); err == nil {
			r.Outcome, err = folder.Place(q.Name, q.Secret)
		}
	case "remove":
		err = folder.Remove(q.Name)
	case "list":
		var l Listing
		l, err = folder.List()
		r.Listing = &l
	default:
		err = errors.New("the request must be place, remove or list")
	}
	if err != nil {
		r = reply{Error: err.Error()}
	}
	return errors.Join(err, json.NewEncoder(conn).Encode(r))
}

// A Keeper is a Store that sends requests to the keeper at a socket.
type Keeper struct{ Socket string }

// Place implements Store.
func (k Keeper) Place(name, secret string) (Outcome, error) {
	r, err := k.do(request{Do: "place", Name: name, Secret: secret})
	if err == nil && r.Outcome != Placed && r.Outcome != There && r.Outcome != Differs {
		err = errors.New("the key keeper's reply contains no outcome")
	}
	return r.Outcome, err
}

// Remove implements Store.
func (k Keeper) Remove(name string) error {
	_, err := k.do(request{Do: "remove", Name: name})
	return err
}

// List implements Store.
func (k Keeper) List() (Listing, error) {
	r, err := k.do(request{Do: "list"})
	if err == nil && r.Listing == nil {
		err = errors.New("the key keeper's reply contains no list")
	}
	if err != nil {
		return Listing{}, err
	}
	return *r.Listing, nil
}

func (k Keeper) do(q request) (r reply, err error) {
	conn, err := net.DialTimeout("unix", k.Socket, requestTimeout)
	if err != nil {
		return reply{}, fmt.Errorf("connect to the key keeper: %w: check that spdk-proxy-keys.socket is started", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return reply{}, fmt.Errorf("query the key keeper: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return reply{}, fmt.Errorf("query the key keeper: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxReplyLength)).Decode(&r); err != nil {
		return reply{}, fmt.Errorf("query the key keeper: %w", err)
	}
	if r.Error != "" {
		return reply{}, fmt.Errorf("the key keeper: %s", r.Error)
	}
	return r, nil
}
