//go:build kubernetes

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// collectLogs writes the cluster's events and the logs of the driver's pods to the directory of the
// processes' logs, which -logs copies.
func collectLogs(ctx context.Context) {
	if *logs == "" || env.driver == nil {
		return
	}
	events, err := env.cluster.Kubectl().Run(ctx, "", "get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp", "--output=wide")
	if err == nil {
		err = os.WriteFile(filepath.Join(env.cluster.Logs(), "events.log"), []byte(events), 0o644)
	}
	if err != nil {
		progress("the events cannot be kept: %v", err)
	}
	pods, err := env.driver.kubectl.Run(ctx, "", "get", "pods", "--output=name")
	if err != nil {
		progress("the pods' logs cannot be kept: %v", err)
		return
	}
	for _, pod := range strings.Fields(pods) {
		text, err := env.driver.kubectl.Run(ctx, "", "logs", pod, "--all-containers", "--prefix")
		if err == nil {
			err = os.WriteFile(filepath.Join(env.cluster.Logs(), filepath.Base(pod)+".log"), []byte(text), 0o644)
		}
		if err != nil {
			progress("the logs of %s cannot be kept: %v", pod, err)
		}
	}
}
