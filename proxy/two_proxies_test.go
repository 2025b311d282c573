package proxy

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/logtest"
)

// If another proxy already serves the same target, a starting proxy logs an error. It also logs the
// end of the other proxy.
func TestSecondProxyLogsAnError(t *testing.T) {
	b := newBench(t, "v26.05")
	start := func() (s *Server, log *logtest.Log, stop func()) {
		log = new(logtest.Log)
		var err error
		s, err = NewServer(b.config, Options{Log: config.NewLogger(log, config.Log{Level: slog.LevelInfo})})
		require.NoError(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, l) }()
		select {
		case <-s.began:
		case <-time.After(time.Minute):
			t.Fatal("this proxy does not serve yet")
		}
		return s, log, func() { cancel(); assert.NoError(t, <-ended) }
	}
	const warning = "another spdk-proxy serves this target"
	shared := func(s *Server) bool { return s.observe.State().Target.Shared }
	first, firstLog, stopFirst := start()
	assert.NotContains(t, firstLog.String(), warning)
	second, secondLog, stopSecond := start()
	assert.Contains(t, secondLog.String(), warning)
	assert.True(t, shared(second))
	assert.False(t, shared(first), "one of the two proxies reports this")
	stopFirst()
	assert.False(t, shared(second))
	assert.Contains(t, secondLog.String(), "the other spdk-proxy no longer serves this target")
	third, thirdLog, stopThird := start()
	assert.Contains(t, thirdLog.String(), warning, "the second proxy has the claim now")
	stopSecond()
	stopThird()
	assert.False(t, shared(third), "this proxy no longer serves")
	_, lastLog, stopLast := start()
	assert.NotContains(t, lastLog.String(), warning)
	stopLast()
}
