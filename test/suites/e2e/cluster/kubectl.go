package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// A Kubectl runs kubectl as the administrator.
type Kubectl struct{ program, config, namespace string }

// Kubectl returns kubectl for the cluster.
func (c *Cluster) Kubectl() Kubectl {
	return Kubectl{program: c.options.Programs["kubectl"], config: c.Kubeconfig()}
}

// Kubeconfig returns the path of the administrator's configuration.
func (c *Cluster) Kubeconfig() string { return c.pki.path(admin + ".kubeconfig") }

// In returns kubectl for a namespace.
func (k Kubectl) In(namespace string) Kubectl {
	k.namespace = namespace
	return k
}

// Run runs kubectl with the given input and returns its output.
func (k Kubectl) Run(ctx context.Context, input string, args ...string) (string, error) {
	flags := []string{"--kubeconfig=" + k.config}
	if k.namespace != "" {
		flags = append(flags, "--namespace="+k.namespace)
	}
	cmd := exec.CommandContext(ctx, k.program, append(flags, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func (k Kubectl) ask(ctx context.Context, args ...string) error {
	_, err := k.Run(ctx, "", args...)
	return err
}
