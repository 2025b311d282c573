package rpcschema

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInvalidNQNsAreRejected(t *testing.T) {
	for nqn, valid := range map[string]bool{
		DiscoveryNQN:                                          true,
		"nqn.2024-01.com.example:vol1":                        true,
		"nqn.2024-01.com.example:vol\n1":                      true,
		"nqn.0000-99.a:b:c":                                   true,
		"nqn.2024-01." + strings.Repeat("a", 64) + ":x":       true,
		"nqn.2024-01." + strings.Repeat("a", 65) + ":x":       false,
		"nqn.2024-01.com.example:":                            false,
		"nqn.2024-01.com.example":                             false,
		"nqn.2024-01..example:x":                              false,
		"nqn.2024-01.com.-example:x":                          false,
		"nqn.2024-01.com.example-:x":                          false,
		"nqn.2024-01.com.1example:x":                          false,
		"nqn.24-01.com.example:x":                             false,
		"nqn.2024-01.com.example:\xff":                        false,
		UUIDPrefix + "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d":   true,
		UUIDPrefix + "8e2dcb9d3a794362965efdb0cd3f4b8d":       false,
		UUIDPrefix + "{8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d}": false,
		UUIDPrefix + "x":                                      false,
		"":                                                    false,
	} {
		assert.Equal(t, valid, ValidNQN(nqn), "%q", nqn)
	}
	prefix := "nqn.2024-01.com.example:"
	assert.True(t, ValidNQN(prefix+strings.Repeat("x", 223-len(prefix))))
	assert.False(t, ValidNQN(prefix+strings.Repeat("x", 224-len(prefix))))
}
