package connect

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Each NVMe option accepts its minimum and maximum, and rejects all values outside that range.
func TestNVMeOptionsOutOfBoundsAreRejected(t *testing.T) {
	for key, b := range map[string]struct {
		least, most int
		unlimited   bool
	}{
		"ctrl_loss_tmo": {1, 86400, true}, "fast_io_fail_tmo": {1, 86400, true}, "reconnect_delay": {1, 3600, false},
		"keep_alive_tmo": {1, 3600, false}, "nr_io_queues": {1, 1024, false}, "queue_size": {16, 1024, false},
	} {
		for n, ok := range map[int]bool{-2: false, -1: b.unlimited, b.least - 1: false, b.least: true, b.most: true, b.most + 1: false} {
			want, valid := validOption(key, strconv.Itoa(n))
			assert.Equal(t, ok, valid, "%s=%d", key, n)
			assert.Contains(t, want, strconv.Itoa(b.least)+" to "+strconv.Itoa(b.most))
		}
		_, valid := validOption(key, "0"+strconv.Itoa(b.most))
		assert.False(t, valid, key)
	}
	for value, ok := range map[string]bool{"true": true, "false": true, "1": false, "": false} {
		_, valid := validOption("hdr_digest", value)
		assert.Equal(t, ok, valid, value)
	}
	for name, c := range map[string]struct {
		o  NVMeOptions
		ok bool
	}{
		"queues of 15":             {NVMeOptions{QueueSize: 15}, false},
		"queues of 16":             {NVMeOptions{QueueSize: 16}, true},
		"queues of 1024":           {NVMeOptions{QueueSize: 1024}, true},
		"queues of 1025":           {NVMeOptions{QueueSize: 1025}, false},
		"one queue":                {NVMeOptions{IOQueues: 1}, true},
		"negative delay":           {NVMeOptions{ReconnectDelay: -time.Second}, false},
		"negative keep-alive":      {NVMeOptions{KeepAlive: -time.Second}, false},
		"negative failure":         {NVMeOptions{FastIOFail: -time.Second}, false},
		"no limit":                 {NVMeOptions{CtrlLossTimeout: -time.Second}, true},
		"half a second":            {NVMeOptions{FastIOFail: time.Second / 2}, false},
		"as long as the limit":     {NVMeOptions{CtrlLossTimeout: 30 * time.Second, ReconnectDelay: 30 * time.Second}, true},
		"longer than the limit":    {NVMeOptions{CtrlLossTimeout: 30 * time.Second, ReconnectDelay: 31 * time.Second}, false},
		"long without a limit":     {NVMeOptions{CtrlLossTimeout: -time.Second, ReconnectDelay: time.Hour}, true},
		"longer than the default":  {NVMeOptions{ReconnectDelay: 601 * time.Second}, false},
		"shorter than the default": {NVMeOptions{ReconnectDelay: 600 * time.Second}, true},
	} {
		assert.Equal(t, c.ok, c.o.validate() == nil, name)
	}
	assert.Equal(t, map[string]string{"ctrl_loss_tmo": "1", "reconnect_delay": "1", "keep_alive_tmo": "1", "fast_io_fail_tmo": "1", "nr_io_queues": "1", "queue_size": "1"},
		NVMeOptions{CtrlLossTimeout: time.Second, ReconnectDelay: time.Second, KeepAlive: time.Second, FastIOFail: time.Second, IOQueues: 1, QueueSize: 1}.values())
}

func TestNamesAndPortsOutOfBoundsAreRejected(t *testing.T) {
	const nqn, iqn = "nqn.2026-11.x:", "iqn.2026-11.x:"
	for n, ok := range map[int]bool{222: true, 223: true, 224: false} {
		assert.Equal(t, ok, validNQN(nqn+strings.Repeat("x", n-len(nqn))), n)
		assert.Equal(t, ok, validIQN(iqn+strings.Repeat("x", n-len(iqn))), n)
	}
	for port, ok := range map[string]bool{"0": false, "1": true, "65535": true, "65536": false, "0x1": false, "a": false, "": false, "-1": false} {
		assert.Equal(t, ok, (&Address{Addr: "192.0.2.1", Port: port}).check() == nil, port)
	}
}

// An observedTransport records the deadlines of the contexts that are passed to a transport.
type observedTransport struct {
	transport
	until time.Time
}

func (o *observedTransport) disconnect(ctx context.Context, _ Export, _ *operation.Step) error {
	o.until, _ = ctx.Deadline()
	return nil
}

// Every operation has a deadline: the caller's, or else the configured timeout.
func TestOperationsHaveADeadline(t *testing.T) {
	const configured, callers = time.Hour, 10 * time.Hour
	o := &observedTransport{}
	c := connectorOf(configured, testLog(t), map[Transport]transport{TCP: o})
	began := time.Now()
	require.NoError(t, c.Disconnect(t.Context(), export1))
	require.False(t, o.until.IsZero(), "it would wait forever for a target that is gone")
	assert.Less(t, o.until.Sub(began), 2*configured)
	ctx, cancel := context.WithTimeout(t.Context(), callers)
	defer cancel()
	require.NoError(t, c.Disconnect(ctx, export1))
	assert.Greater(t, o.until.Sub(began), callers-configured)
}
