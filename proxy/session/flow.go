package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// FlowTime limits how long a sign-in at an issuer's page may take.
const FlowTime = 10 * time.Minute

// Flows binds sign-ins at an issuer's page to the browsers in which they began. It is stateless:
// all data of a sign-in is derived from a ticket that the browser keeps, and from a key of this
// process. It is safe for concurrent use.
type Flows struct {
	now func() time.Time
	key [sha256.Size]byte
}

// A Flow contains the secrets of a sign-in. Each secret has 256 bits, encoded in characters that
// URLs may contain.
type Flow struct {
	State    string // the issuer returns it through the browser
	Nonce    string // the issuer returns it in the token
	Verifier string // for PKCE; known only to the proxy
}

// NewFlows returns Flows with a new key. now is the clock; nil selects time.Now.
func NewFlows(now func() time.Time) *Flows {
	if now == nil {
		now = time.Now
	}
	f := &Flows{now: now}
	_, _ = rand.Read(f.key[:]) // never fails
	return f
}

// A ticket consists of random bytes, the time when it expires, and a MAC of both.
const (
	ticketRandom = 32
	ticketSigned = ticketRandom + 8
	ticketBytes  = ticketSigned + sha256.Size
)

// Begin begins a sign-in. The ticket must be disclosed only to the browser.
func (f *Flows) Begin() (ticket string, flow Flow) {
	b := make([]byte, ticketRandom, ticketBytes)
	_, _ = rand.Read(b) // never fails
	b = binary.BigEndian.AppendUint64(b, uint64(f.now().Add(FlowTime).Unix()))
	return base64.RawURLEncoding.EncodeToString(append(b, f.mac("ticket", b)...)), f.flow(b)
}

// Resume returns the sign-in for a ticket, or false if this process did not issue the ticket or the
// sign-in has taken too long.
func (f *Flows) Resume(ticket string) (flow Flow, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(ticket)
	if err != nil || len(b) != ticketBytes || !hmac.Equal(b[ticketSigned:], f.mac("ticket", b[:ticketSigned])) {
		return Flow{}, false
	}
	if ends := binary.BigEndian.Uint64(b[ticketRandom:]); uint64(f.now().Unix()) >= ends {
		return Flow{}, false
	}
	return f.flow(b[:ticketSigned]), true
}

func (f *Flows) flow(signed []byte) Flow {
	secret := func(purpose string) string { return base64.RawURLEncoding.EncodeToString(f.mac(purpose, signed)) }
	return Flow{State: secret("state"), Nonce: secret("nonce"), Verifier: secret("verifier")}
}

func (f *Flows) mac(purpose string, text []byte) []byte {
	h := hmac.New(sha256.New, f.key[:])
	h.Write([]byte(purpose + "\x00"))
	h.Write(text)
	return h.Sum(nil)
}
