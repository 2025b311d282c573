package changes

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// yielding returns a variable for the environment of targets. With SPDK_TGT_YIELD=1, it makes
// targets that have nothing to do yield their core. Otherwise, targets that share a core wait for
// each other's time slices, and each command to a namespace of another target takes tens of
// milliseconds.
func yielding(t *testing.T) []string {
	if os.Getenv("SPDK_TGT_YIELD") != "1" {
		return nil
	}
	library, err := yieldLibrary()
	require.NoError(t, err, "SPDK_TGT_YIELD=1 needs a C compiler")
	return []string{"LD_PRELOAD=" + library}
}

var yieldLibrary = sync.OnceValues(func() (string, error) {
	return build(programs+"/yield.so", "cc", "-O2", "-shared", "-fPIC", "-o", programs+"/yield.so", "testdata/yield.c", "-ldl")
})
