package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A keeper is a process of spdk_tgt's user that does nothing but keep a Folder
// for a proxy that is another user: SPDK takes only files of its own user. They
// talk over a UNIX socket, one question for a connection.
type question struct {
	Do     string `json:"do"` // place, remove, list
	Name   string `json:"name,omitempty"`
	Secret string `json:"secret,omitempty"`
}

type reply struct {
	Outcome Outcome  `json:"outcome,omitempty"`
	Listing *Listing `json:"listing,omitempty"`
	Error   string   `json:"error,omitempty"`
}

const (
	talkWithin     = 5 * time.Second
	maxAskedLength = 4 << 10
	maxReplyLength = 16 << 20
)

// Keep answers one question that comes on conn.
func Keep(conn io.ReadWriter, folder *Folder) error {
	var q question
	dec := json.NewDecoder(io.LimitReader(conn, maxAskedLength))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return errors.New("the question is not understood") // it may hold a secret
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
		err = errors.New("the question is none of place, remove and list")
	}
	if err != nil {
		r = reply{Error: err.Error()}
	}
	return errors.Join(err, json.NewEncoder(conn).Encode(r))
}

// A Keeper is the Store of a keeper that listens at a socket.
type Keeper struct{ Socket string }

// Place implements Store.
func (k Keeper) Place(name, secret string) (Outcome, error) {
	r, err := k.ask(question{Do: "place", Name: name, Secret: secret})
	if err == nil && r.Outcome != Placed && r.Outcome != There && r.Outcome != Differs {
		err = errors.New("the keeper of keys has not said what it did")
	}
	return r.Outcome, err
}

// Remove implements Store.
func (k Keeper) Remove(name string) error {
	_, err := k.ask(question{Do: "remove", Name: name})
	return err
}

// List implements Store.
func (k Keeper) List() (Listing, error) {
	r, err := k.ask(question{Do: "list"})
	if err == nil && r.Listing == nil {
		err = errors.New("the keeper of keys has not listed them")
	}
	if err != nil {
		return Listing{}, err
	}
	return *r.Listing, nil
}

func (k Keeper) ask(q question) (r reply, err error) {
	conn, err := net.DialTimeout("unix", k.Socket, talkWithin)
	if err != nil {
		return reply{}, fmt.Errorf("reach the keeper of keys: %w: is spdk-proxy-keys.socket started?", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(talkWithin)); err != nil {
		return reply{}, fmt.Errorf("ask the keeper of keys: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return reply{}, fmt.Errorf("ask the keeper of keys: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxReplyLength)).Decode(&r); err != nil {
		return reply{}, fmt.Errorf("ask the keeper of keys: %w", err)
	}
	if r.Error != "" {
		return reply{}, fmt.Errorf("the keeper of keys: %s", r.Error)
	}
	return r, nil
}
