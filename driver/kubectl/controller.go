package kubectl

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// controllerPod returns a ready pod of the controller on a ready node. A pod can remain ready after
// its node has failed, and kubectl exec in such a pod would not return. If no pod is ready,
// controllerPod returns a pod on a ready node; if there is none, it fails. If the deployment or its
// pods cannot be read, or no pods exist, kubectl chooses the pod. If the nodes cannot be read,
// controllerPod treats them as ready.
func (c Client) controllerPod(ctx context.Context) (string, error) {
	kind, name, _ := strings.Cut(c.Controller, "/")
	if !isDeployment(kind) {
		return c.Controller, nil
	}
	var d deployment
	if err := c.get(ctx, deploymentPath(c.Namespace, name), nil, &d); err != nil || len(d.Spec.Selector.MatchLabels) == 0 {
		return c.Controller, nil
	}
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(d.Spec.Selector.MatchLabels)) {
		labels = append(labels, key+"="+d.Spec.Selector.MatchLabels[key])
	}
	pods, err := list[pod](ctx, c, podsPath(c.Namespace), url.Values{"labelSelector": {strings.Join(labels, ",")}})
	if err != nil {
		return c.Controller, nil
	}
	pods = slices.DeleteFunc(pods, func(p pod) bool { return p.Metadata.DeletionTimestamp != "" })
	if len(pods) == 0 {
		return c.Controller, nil
	}
	nodes, err := list[node](ctx, c, nodesPath, nil)
	if err != nil {
		return controllerOnAnyNode(c.Controller, pods), nil
	}
	return c.controllerOnReadyNode(pods, nodes)
}

// isDeployment reports whether kubectl understands kind as the kind of a Deployment.
func isDeployment(kind string) bool {
	return slices.Contains([]string{"deploy", "deployment", "deployments", "deployment.apps", "deployments.apps"}, kind)
}

// controllerOnAnyNode returns a ready pod. If no pod is ready, it returns the controller's
// Deployment, from which kubectl chooses a pod.
func controllerOnAnyNode(controller string, pods []pod) string {
	for _, p := range pods {
		if isReady(p.Status.Conditions) {
			return "pod/" + p.Metadata.Name
		}
	}
	return controller
}

// controllerOnReadyNode returns a pod on a ready node. It prefers ready pods.
func (c Client) controllerOnReadyNode(pods []pod, nodes []node) (string, error) {
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.Metadata.Name] = isReady(n.Status.Conditions)
	}
	var unready, lost, names []string
	for _, p := range pods {
		switch {
		case p.Spec.NodeName == "":
			lost = append(lost, p.Metadata.Name+" is not scheduled")
		case !ready[p.Spec.NodeName]:
			lost = append(lost, p.Metadata.Name+" is on node "+p.Spec.NodeName+", which is not ready")
			names = append(names, p.Metadata.Name)
		case isReady(p.Status.Conditions):
			return "pod/" + p.Metadata.Name, nil
		default:
			unready = append(unready, "pod/"+p.Metadata.Name)
		}
	}
	if len(unready) > 0 {
		return unready[0], nil
	}
	advice := "wait until a pod is scheduled"
	if len(names) > 0 {
		advice = fmt.Sprintf("wait about 6 minutes until Kubernetes starts another pod, or run "+
			"`kubectl --namespace=%s delete pod %s --wait=false`", c.Namespace, strings.Join(names, " "))
	}
	return "", fmt.Errorf("no pod of %s in namespace %s is on a ready node: %s. Nothing was executed: %s, then repeat this command",
		c.Controller, c.Namespace, strings.Join(lost, ", "), advice)
}
