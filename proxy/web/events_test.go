package web

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A type that the target makes up cannot forge lines of the stream.
func TestTypesOfTheTargetAreChecked(t *testing.T) {
	for kind, valid := range map[string]bool{"bdev_register": true, "": false, "a b": false, "x\nid: 1": false, strings.Repeat("a", 65): false} {
		assert.Equal(t, valid, eventType.MatchString(kind), kind)
	}
}
