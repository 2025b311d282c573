package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLongestChainIsFound(t *testing.T) {
	assert.Zero(t, longestChain(nil))
	assert.Zero(t, longestChain(map[string]string{"v": "", "s": ""}))
	assert.Equal(t, 2, longestChain(map[string]string{"v": "s2", "s2": "s1", "s1": "", "w": "s1", "x": ""}))
	assert.Equal(t, 1, longestChain(map[string]string{"v": "elsewhere"}), "a base that is not listed any more")
	assert.LessOrEqual(t, longestChain(map[string]string{"a": "b", "b": "a"}), 2, "it ends")
}
