//go:build kubernetes

package e2e

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var claims = flag.Int("claims", 24, "claims of TestManyClaims")

func TestManyClaims(t *testing.T) {
	n := newNamespace(t, fmt.Sprintf("%d claims made at once: each gets a volume, and all volumes are deleted with them", *claims))
	var all strings.Builder
	for i := range *claims {
		all.WriteString(claim(fmt.Sprint("data-", i), storageClass, "4Mi", "") + "---\n")
	}
	measure := func(what string, start time.Time, count func(ctx context.Context) (left int, err error)) {
		t.Helper()
		n.eventually(what, func(ctx context.Context) error {
			left, err := count(ctx)
			if err == nil && left > 0 {
				err = fmt.Errorf("%d are left", left)
			}
			return err
		})
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
