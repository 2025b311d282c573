//go:build kubernetes

package e2e

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var claims = flag.Int("claims", 0, "run TestManyClaimsAreBound with this number of claims")

func TestManyClaimsAreBound(t *testing.T) {
	if *claims == 0 {
		t.Skip("this is a measurement: give a number with -claims")
	}
	n := newNamespace(t, fmt.Sprintf("%d claims created at once: each gets a volume, and all volumes are deleted with them", *claims))
	var all strings.Builder
	for i := range *claims {
		all.WriteString(claim(fmt.Sprint("data-", i), storageClass, "4Mi", "") + "---\n")
	}
	measure := func(what string, start time.Time, count func(ctx context.Context) (left int, err error)) {
		t.Helper()
		left, err := 1, error(nil)
		for left > 0 {
			left, err = count(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		elapsed := time.Since(start)
		n.figure("%s in %.1f s, %.1f/s", what, elapsed.Seconds(), float64(*claims)/elapsed.Seconds())
	}
	start := time.Now()
	n.apply(all.String())
	measure("bound", start, func(ctx context.Context) (int, error) {
		phases, err := n.kubectl.Run(ctx, "", "get", "pvc", "--output=jsonpath={.items[*].status.phase}")
		return strings.Count(phases, "Pending"), err
	})
	start = time.Now()
	n.run("delete", "pvc", "--all", "--wait=false")
	measure("deleted", start, func(ctx context.Context) (int, error) {
		volumes, err := n.kubectl.Run(ctx, "", "get", "pv", "--output=jsonpath={.items[?(@.spec.claimRef.namespace=='"+n.name+"')].metadata.name}")
		return len(strings.Fields(volumes)), err
	})
}
