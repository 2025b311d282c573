package globs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGlobsMatchAndOverlap(t *testing.T) {
	assert.True(t, MatchesAny([]string{"a", "b?"}, "b1"))
	assert.False(t, MatchesAny([]string{"a", "b?", "["}, "b12"))
	for _, pair := range [][2]string{{"a", "a"}, {"a*", "ab"}, {"ab", "a?"}, {"a*", "ab*"}, {"*", "b?"}} {
		assert.True(t, Overlap(pair[0], pair[1]), pair)
	}
	for _, pair := range [][2]string{{"a", "b"}, {"a?", "abc"}, {"a*", "b*"}} {
		assert.False(t, Overlap(pair[0], pair[1]), pair)
	}
	assert.Equal(t, "ab", Literal("ab[c]"))
	assert.Equal(t, "ab", Literal("ab"))
}
