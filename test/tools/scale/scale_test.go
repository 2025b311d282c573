package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The measurement also works on a small scale. All volumes are created, and if a storage server is
// down, only some of them are affected.
func TestScale(t *testing.T) {
	var out bytes.Buffer
	s := settings{targets: 3, volumes: 30, creates: 10, inFlight: 4, down: 1, nodes: 5, drained: 2, targetTimeout: time.Minute}
	require.NoError(t, run(t.Context(), s, &out))
	assert.Regexp(t, `(?m)^create, just started .* 0 +\d+ +\d+ +[0-9.]+  $`, out.String())
	assert.Regexp(t, `(?m)^list of all volumes .* 50 volumes, 20 publications, `, out.String())
	for _, step := range []string{"publish to 5 nodes", "publish again", "publish to 2 nodes", "drain of 2 nodes", "fence a node", "unpublish", "unpublish from all nodes", "delete"} {
		assert.Regexp(t, `(?m)^`+step+` +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9.]+ +0 `, out.String(), "none fails")
	}
	assert.Regexp(t, `(?m)^fence a node .* [1-9]\d* exports closed$`, out.String())
	assert.Regexp(t, `(?m)^create, 1 servers down .*Unavailable`, out.String())
}
