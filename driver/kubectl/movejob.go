package kubectl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// The Job finds the original's PersistentVolume and the nodes' keys in these directories.
const recordMount, keysMount = "/move", "/keys"

// moveContainer is the name of the Job's container.
const moveContainer = "move"

// copyArgs returns the arguments of spdk-csi for copying the volume.
func (m Move) copyArgs(r *record) []string {
	args := m.moveArgs()
	for _, key := range slices.Sorted(maps.Keys(r.parameters)) {
		args = append(args, "--parameter="+key+"="+r.parameters[key])
	}
	return args
}

// moveArgs returns the arguments of spdk-csi that all Jobs of a move have.
func (m Move) moveArgs() []string {
	return []string{"move", "--pv=" + recordMount + "/" + keyOld, "--drivername=" + m.Driver}
}

// runJob runs spdk-csi with args in a Job, shows its progress, and returns the end of its log. If
// an interrupted call has started the same Job, runJob waits for that Job. If a different Job of
// the move is running, runJob fails or, if stop is set, stops it first.
func (m Move) runJob(ctx context.Context, r *record, args []string, stop bool) (log string, err error) {
	uid, err := m.startJob(ctx, r, args, stop)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(m.Notes, "Job %s/%s runs spdk-csi %s\n", m.Client.Namespace, r.name(), strings.Join(args, " "))
	shown := &progressLines{to: m.Notes}
	for {
		job, err := m.find(ctx, jobObjects(m.Client.Namespace), r.name())
		if err != nil {
			return "", err
		}
		if job == nil {
			return "", fmt.Errorf("the Job %s/%s was deleted while it ran; repeat this command", m.Client.Namespace, r.name())
		}
		if job.uid() != uid {
			return "", fmt.Errorf("%w: another command has replaced the Job %s/%s. Wait until that command has ended, and repeat this command", ErrOtherMove, m.Client.Namespace, r.name())
		}
		log, state, unread := m.jobLog(ctx, r)
		switch {
		case unread != nil:
			shown.note(unread.Error())
		case log == "":
			shown.note(state)
		default:
			shown.print(log)
		}
		switch {
		case hasCondition(job, "Complete"):
			return log, unread
		case hasCondition(job, "Failed"):
			return "", errors.Join(fmt.Errorf("the Job %s/%s failed: %s. Remove the cause, and repeat this command", m.Client.Namespace, r.name(), lastLine(log)), unread)
		}
		if err := m.pause(ctx); err != nil {
			return "", err
		}
	}
}

// startJob creates the Job, unless it is running or was completed, and returns its UID. It deletes
// other Jobs of the move, and Jobs that have failed earlier.
func (m Move) startJob(ctx context.Context, r *record, args []string, stop bool) (uid string, err error) {
	spec, err := m.jobSpec(ctx, r, args)
	if err != nil {
		return "", err
	}
	err = m.await(ctx, func() (string, error) {
		job, err := m.find(ctx, jobObjects(m.Client.Namespace), r.name())
		if err != nil {
			return "", err
		}
		if job == nil {
			job, err := m.create(ctx, jobObjects(m.Client.Namespace), object{"metadata": m.jobMetadata(r), "spec": spec})
			uid = job.uid()
			return "", err
		}
		ended := hasCondition(job, "Complete") || hasCondition(job, "Failed")
		if !job.terminated() {
			if slices.Equal(argsOf(job), argsOf(object{"spec": spec})) && r.owns(job) {
				if log, _, err := m.jobLog(ctx, r); !ended || err != nil || hasCondition(job, "Complete") && log != "" {
					uid = job.uid()
					return "", err
				}
			} else if !ended && !stop {
				return "", fmt.Errorf("%w: Job %s/%s is still running for an earlier command. Wait until it has ended, or delete it; then repeat this command", ErrOtherMove, m.Client.Namespace, r.name())
			}
			if err := m.remove(ctx, jobObjects(m.Client.Namespace), job, false); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("Job %s/%s of an earlier command is being deleted, but its pod does not end. Repeat this command later", m.Client.Namespace, r.name()), nil
	})
	return uid, err
}

func (m Move) jobMetadata(r *record) map[string]any {
	return map[string]any{
		"name": r.name(), "namespace": m.Client.Namespace, "labels": map[string]any{"app": moveLabel},
		// Kubernetes deletes the Job with the record.
		"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": r.name(), "uid": r.configMap.uid()}},
	}
}

// owns reports whether a Job belongs to the move, and not to an earlier move of the claim.
func (r *record) owns(job object) bool {
	owners, _ := job.at("metadata", "ownerReferences").([]any)
	return slices.ContainsFunc(owners, func(o any) bool {
		owner, _ := o.(map[string]any)
		return owner["uid"] == r.configMap.uid()
	})
}

// argsOf returns the arguments of a Job's container.
func argsOf(job object) (args []string) {
	containers, _ := job.at("spec", "template", "spec", "containers").([]any)
	if len(containers) != 1 {
		return nil
	}
	container, _ := containers[0].(map[string]any)
	all, _ := container["args"].([]any)
	for _, arg := range all {
		args = append(args, fmt.Sprint(arg))
	}
	return args
}

func hasCondition(job object, kind string) bool {
	all, _ := job.at("status", "conditions").([]any)
	return slices.ContainsFunc(all, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == kind && condition["status"] == "True"
	})
}

// A jobPod is a pod of a Job.
type jobPod struct {
	Metadata struct{ Name, CreationTimestamp string }
	Status   struct {
		Phase             string
		Conditions        []struct{ Type, Status, Message string }
		ContainerStatuses []struct {
			State struct {
				Running, Terminated *struct{}
				Waiting             struct{ Reason, Message string }
			}
		}
	}
}

// jobLog returns the end of the log of the Job's latest pod. The log is empty if there is no pod or
// its container has not started; state then explains why.
func (m Move) jobLog(ctx context.Context, r *record) (log, state string, err error) {
	pods, err := list[jobPod](ctx, m.Client, podsPath(m.Client.Namespace), url.Values{"labelSelector": {"job-name=" + r.name()}})
	if err != nil || len(pods) == 0 {
		return "", "waiting for the Job's pod", err
	}
	pod := slices.MaxFunc(pods, func(a, b jobPod) int {
		return strings.Compare(a.Metadata.CreationTimestamp+a.Metadata.Name, b.Metadata.CreationTimestamp+b.Metadata.Name)
	})
	state = "waiting for pod " + m.Client.Namespace + "/" + pod.Metadata.Name
	for _, c := range pod.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status != "True" && c.Message != "" {
			state += ": " + c.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil || c.State.Terminated != nil {
			const lines = "1000" // more than the copy's PersistentVolume has
			text, err := m.raw(ctx, "get", podsPath(m.Client.Namespace)+"/"+pod.Metadata.Name+"/log?container="+moveContainer+"&tailLines="+lines, nil)
			return string(text), state, err
		}
		if c.State.Waiting.Reason != "" {
			state += ": " + strings.TrimSuffix(c.State.Waiting.Reason+": "+c.State.Waiting.Message, ": ")
		}
	}
	return "", state, nil
}

// copyIn returns the copy's PersistentVolume, which is at the end of the Job's log, and checks that
// it belongs to the move. Each of its lines begins with a brace or a space, and no other line does.
func copyIn(log string, r *record) (object, error) {
	var text strings.Builder
	for line := range strings.Lines(log) {
		if line == "{\n" {
			text.Reset()
		}
		if strings.IndexAny(line, "{ }") == 0 {
			text.WriteString(line)
		}
	}
	volume, err := parseObject([]byte(text.String()))
	switch handle := volume.text("spec", "csi", "volumeHandle"); {
	case err != nil:
		return nil, fmt.Errorf("it does not end with the copy's PersistentVolume: %w", err)
	case volume["kind"] != "PersistentVolume" || volume.name() == "" || volume.name() == r.old.name() || handle == "" || handle == r.old.text("spec", "csi", "volumeHandle") ||
		volume.text("spec", "claimRef", "namespace") != r.claim.text("metadata", "namespace") || volume.text("spec", "claimRef", "name") != r.claim.name():
		return nil, errors.New("its PersistentVolume does not belong to this move")
	}
	return volume, nil
}

func lastLine(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return lines[len(lines)-1]
}
