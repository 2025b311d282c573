package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// uninitialized is the taint of a node that the cloud controller has not labeled yet.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// Labels returns the node's labels with these keys, omitting keys that the node lacks. While a
// cloud controller has not yet labeled the node, or the API server does not respond, Labels waits
// until ctx ends.
func (c *Client) Labels(ctx context.Context, nodeName string, keys []string, log *slog.Logger) (map[string]string, error) {
	return c.labels(ctx, nodeName, keys, log, sleep)
}

func (c *Client) labels(ctx context.Context, nodeName string, keys []string, log *slog.Logger, wait func(context.Context, time.Duration) error) (map[string]string, error) {
	for {
		n, err := c.node(ctx, nodeName)
		switch {
		case err == nil && !slices.Contains(n.taints(), uninitialized):
			found := map[string]string{}
			for _, key := range keys {
				if value, ok := n.Metadata.Labels[key]; ok {
					found[key] = value
				}
			}
			return found, nil
		case err == nil:
			log.Info("waiting for the node's labels: the cloud controller has not initialized the node", "node", nodeName, "taint", uninitialized)
		case errors.Is(err, ErrForbidden), errors.Is(err, ErrNotFound):
			return nil, err
		default:
			log.Warn("the node's labels cannot be read; trying again", "node", nodeName, "error", err)
		}
		if waitErr := wait(ctx, 2*time.Second); waitErr != nil {
			return nil, errors.Join(err, waitErr)
		}
	}
}
