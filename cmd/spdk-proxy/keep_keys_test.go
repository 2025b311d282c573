package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/keys"
)

// keep-keys works when it is run as systemd runs it: one process per connection, with the
// connection as standard input.
func TestKeepKeysServesOneConnection(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	keepKeys(t, dir, "sock", dir)
}

// Instances of spdk-proxy do not share keys, even if the keys have the same name.
func TestInstancesDoNotShareKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	keepKeys(t, dir, "spdk-proxy-keys.sock", dir)
	keepKeys(t, dir, "spdk-proxy-keys@a.sock", filepath.Join(dir, "a"))
}

func keepKeys(t *testing.T, dir, name, stored string) {
	socket := filepath.Join(t.TempDir(), name)
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); serving.Wait(); cancel() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			file, err := c.(*net.UnixConn).File()
			assert.NoError(t, err)
			cmd := command(ctx, "keep-keys", "--dir", dir)
			cmd.Stdin, cmd.Stderr = file, os.Stderr
			if err := cmd.Run(); err != nil { // for example, a request that has timed out
				t.Log(err)
			}
			_ = file.Close()
			_ = c.Close()
		}
	})
	k := keys.Keeper{Socket: socket}
	const secret = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	// Each request starts a process, which can time out on a busy machine.
	repeat := func(request func() error) {
		t.Helper()
		require.Eventually(t, func() bool { err = request(); return !errors.Is(err, os.ErrDeadlineExceeded) }, long, time.Millisecond)
		require.NoError(t, err)
	}
	var outcomes []keys.Outcome
	repeat(func() error {
		outcome, err := k.Place("a", secret)
		outcomes = append(outcomes, outcome)
		return err
	})
	if len(outcomes) == 1 {
		assert.Equal(t, keys.Placed, outcomes[0])
	}
	var list keys.Listing
	repeat(func() (err error) { list, err = k.List(); return err })
	assert.Equal(t, stored, list.Dir)
	text, err := os.ReadFile(list.Path("a"))
	require.NoError(t, err)
	assert.Equal(t, secret, string(text))
	repeat(func() error { return k.Remove("a") })
	assert.NoFileExists(t, list.Path("a"))
}
