package session

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSignInFlowsExpire(t *testing.T) {
	c := &clock{at: time.Now()}
	f := NewFlows(c.now)
	ticket, flow := f.Begin()
	other, another := f.Begin()
	assert.NotEqual(t, flow.State, another.State)
	assert.Regexp(t, `^[A-Za-z0-9_-]{43}$`, flow.Verifier, "as PKCE requires")
	assert.NotEqual(t, flow.State, flow.Nonce)
	assert.NotEqual(t, flow.Nonce, flow.Verifier)
	for _, secret := range []string{flow.State, flow.Nonce, flow.Verifier} {
		assert.NotContains(t, ticket, secret)
	}
	again, ok := f.Resume(ticket)
	require.True(t, ok)
	assert.Equal(t, flow, again)
	second, ok := f.Resume(other)
	require.True(t, ok)
	assert.Equal(t, another, second)

	_, ok = NewFlows(c.now).Resume(ticket)
	assert.False(t, ok, "of another process")
	raw, err := base64.RawURLEncoding.DecodeString(ticket)
	require.NoError(t, err)
	for i := range raw {
		changed := append([]byte{}, raw...)
		changed[i] ^= 1
		_, ok = f.Resume(base64.RawURLEncoding.EncodeToString(changed))
		require.False(t, ok, "byte %d", i)
	}
	for _, wrong := range []string{"", "a", ticket + "A", ticket[1:], ticket + "=", flow.State} {
		_, ok = f.Resume(wrong)
		assert.False(t, ok, wrong)
	}
	c.pass(FlowTime - time.Second)
	_, ok = f.Resume(ticket)
	assert.True(t, ok)
	c.pass(time.Second)
	_, ok = f.Resume(ticket)
	assert.False(t, ok, "it took too long")
}

// Only strings returned by Begin are valid tickets.
func FuzzResume(f *testing.F) {
	flows := NewFlows(nil)
	ticket, _ := flows.Begin()
	for _, seed := range []string{"", ticket, ticket[:20], ticket + ticket, "%%%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := flows.Resume(text); ok {
			assert.Equal(t, ticket, text)
		}
	})
}
