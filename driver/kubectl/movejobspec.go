package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// keyAuthentication is the volume attribute and class parameter that makes nodes authenticate.
const keyAuthentication = "authentication"

func deploymentObjects(namespace string) collection {
	return collection{"apps/v1", "Deployment", "/apis/apps/v1/namespaces/" + namespace + "/deployments"}
}

func daemonSetObjects(namespace string) collection {
	return collection{"apps/v1", "DaemonSet", "/apis/apps/v1/namespaces/" + namespace + "/daemonsets"}
}

// workload returns the pod template's specification of a workload, and its container with the
// driver.
func (m Move) workload(ctx context.Context, c collection, name, container string) (spec, driver object, err error) {
	o, err := m.find(ctx, c, name)
	if err != nil {
		return nil, nil, err
	}
	spec, _ = o.at("spec", "template", "spec").(map[string]any)
	containers, _ := spec.at("containers").([]any)
	for _, one := range containers {
		if driver, _ = one.(map[string]any); driver["name"] == container {
			return spec, driver, nil
		}
	}
	return nil, nil, fmt.Errorf("%s %s in namespace %s, with container %s, was not found: name it with --driver-namespace, --controller, --container, --node-daemonset and --node-container",
		c.kind, name, m.Client.Namespace, container)
}

// jobSpec returns the specification of the Job. It has the controller's image, configuration and
// credentials, and attaches volumes as the node plugin does.
func (m Move) jobSpec(ctx context.Context, r *record, args []string) (map[string]any, error) {
	kind, name, _ := strings.Cut(m.Controller, "/")
	if !isDeployment(kind) {
		return nil, fmt.Errorf("--controller=%s: a move needs the controller's Deployment, as in deployment/spdkcsi-controller", m.Controller)
	}
	controllerSpec, controller, err := m.workload(ctx, deploymentObjects(m.Client.Namespace), name, m.Container)
	if err != nil {
		return nil, err
	}
	nodeSpec, node, err := m.workload(ctx, daemonSetObjects(m.Client.Namespace), m.DaemonSet, m.NodeContainer)
	if err != nil {
		return nil, err
	}
	mounts := &jobMounts{}
	mounts.add(recordMount, map[string]any{"configMap": map[string]any{"name": r.name(), "items": []any{map[string]any{"key": keyOld, "path": keyOld}}}})
	mounts.addFrom(node, nodeSpec)
	mounts.addFrom(controller, controllerSpec)
	args, err = m.withKeys(r, mounts, args)
	if err != nil {
		return nil, err
	}
	all := []any{}
	for _, arg := range args {
		all = append(all, arg)
	}
	nodeArgs, _ := node["args"].([]any)
	for _, arg := range nodeArgs {
		if text, _ := arg.(string); strings.HasPrefix(text, "--topology=") || strings.HasPrefix(text, "--node-allow-loop") {
			all = append(all, arg)
		}
	}
	container := map[string]any{
		"name": moveContainer, "image": controller["image"], "args": all, "env": slices.Concat(items(node["env"]), items(controller["env"])),
		"securityContext": node["securityContext"], "volumeMounts": mounts.mounts,
		"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}, "limits": map[string]any{"memory": "256Mi"}},
	}
	pod := map[string]any{
		"automountServiceAccountToken": false, "restartPolicy": "Never", "containers": []any{container}, "volumes": mounts.volumes,
		"serviceAccountName": controllerSpec["serviceAccountName"], "imagePullSecrets": controllerSpec["imagePullSecrets"],
		"nodeSelector": nodeSpec["nodeSelector"], "hostNetwork": nodeSpec["hostNetwork"], "dnsPolicy": nodeSpec["dnsPolicy"], "securityContext": nodeSpec["securityContext"],
	}
	if policy, ok := controller["imagePullPolicy"]; ok {
		container["imagePullPolicy"] = policy
	}
	if m.Node != "" {
		pod["nodeName"] = m.Node
	}
	return map[string]any{
		// The person who runs the command repeats it, which continues an interrupted copy.
		"backoffLimit": 0, "podReplacementPolicy": "Failed",
		"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": moveLabel}}, "spec": pod},
	}, nil
}

func items(value any) []any {
	all, _ := value.([]any)
	return all
}

// withKeys mounts the Secret with the nodes' keys, if the original or the copy requires
// authentication.
func (m Move) withKeys(r *record, mounts *jobMounts, args []string) ([]string, error) {
	copied := r.parameters[keyAuthentication]
	if copied == "" && r.old.text("spec", "csi", "volumeAttributes", keyAuthentication) == "" {
		return args, nil
	}
	secret := m.KeysSecret
	if reference := r.old.texts("spec", "csi", "nodeStageSecretRef"); secret == "" && reference["namespace"] == m.Client.Namespace {
		secret = reference["name"]
	}
	if secret == "" {
		return nil, fmt.Errorf("%w: nodes authenticate for the original or the copy. Create a Secret with their keys in namespace %s, and name it with --keys-secret",
			ErrNotMovable, m.Client.Namespace)
	}
	mounts.add(keysMount, map[string]any{"secret": map[string]any{"secretName": secret}})
	return append(slices.Clone(args), "--secret-dir="+keysMount), nil
}

// jobMounts collects the mounts of the Job's container. The first one at a path is used.
type jobMounts struct{ mounts, volumes []any }

func (j *jobMounts) add(path string, source map[string]any) {
	name := fmt.Sprint("v", len(j.volumes))
	volume := map[string]any{"name": name}
	for key, value := range source {
		if key != "name" {
			volume[key] = value
		}
	}
	j.mounts = append(j.mounts, map[string]any{"name": name, "mountPath": path})
	j.volumes = append(j.volumes, volume)
}

// addFrom adds the mounts of a container, except those with which kubelet and the sidecars use the
// driver, and those with which the driver uses the API.
func (j *jobMounts) addFrom(container, pod object) {
	for _, one := range items(container["volumeMounts"]) {
		mount, _ := one.(map[string]any)
		path, _ := mount["mountPath"].(string)
		_, propagates := mount["mountPropagation"]
		if propagates || path == "/csi" || path == "/registration" || strings.HasPrefix(path, "/var/run/secrets/") ||
			slices.ContainsFunc(j.mounts, func(m any) bool { return m.(map[string]any)["mountPath"] == path }) {
			continue
		}
		for _, v := range items(pod["volumes"]) {
			if volume, _ := v.(map[string]any); volume["name"] == mount["name"] {
				j.add(path, volume)
				for _, key := range []string{"readOnly", "subPath"} {
					if value, ok := mount[key]; ok {
						j.mounts[len(j.mounts)-1].(map[string]any)[key] = value
					}
				}
			}
		}
	}
}

// endArgs returns the arguments with which spdk-csi deletes the original.
func (m Move) endArgs(r *record) ([]string, error) {
	copied := r.copied.text("spec", "csi", "volumeHandle")
	if copied == "" {
		return nil, errors.New("the record of the move does not contain the copy's id")
	}
	args := append(m.moveArgs(), "--delete-original", "--copy="+copied)
	if method := r.copied.text("spec", "csi", "volumeAttributes", keyAuthentication); method != "" {
		args = append(args, "--authentication="+method)
	}
	return args, nil
}
