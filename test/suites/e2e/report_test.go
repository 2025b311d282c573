//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report prints information that helps to find out why a test has failed.
func (n *namespace) report() {
	ctx := context.Background()
	for _, args := range [][]string{{"get", "pods,pvc,volumesnapshots", "--output=wide"}, {"get", "events", "--sort-by=.lastTimestamp"}} {
		out, err := n.kubectl.Run(ctx, "", args...)
		n.t.Logf("kubectl %s (%v)\n%s", strings.Join(args, " "), err, out)
	}
	for _, object := range []string{"deployment/" + driverDeployment, "daemonset/" + driverDaemonSet} {
		out, err := env.driver.kubectl.Run(ctx, "", "logs", object, "--all-pods", "--all-containers", "--tail=10", "--prefix")
		n.t.Logf("logs of %s (%v)\n%s", object, err, out)
	}
	n.t.Log(volumeReport(ctx, n.name))
	results.note(summary(ctx, n.name))
}

// summary describes in a few lines, for the end of the output, what a namespace's claims, pods and
// volumes are waiting for.
func summary(ctx context.Context, namespace string) string {
	k := env.cluster.Kubectl()
	lines := []string{"namespace " + namespace + ":"}
	ask := func(what string, last int, args ...string) {
		out, err := k.Run(ctx, "", args...)
		all := strings.Split(strings.TrimSpace(out+because(err)), "\n")
		for _, line := range all[max(0, len(all)-last):] {
			lines = append(lines, fmt.Sprintf("  %-11s %s", what, line[:min(len(line), 500)]))
		}
	}
	const in = "--namespace="
	ask("pods", 9, "get", "pods", in+namespace, "--no-headers", "--output=wide")
	ask("claims", 9, "get", "pvc", in+namespace, "--no-headers", "--output=custom-columns=NAME:.metadata.name,PHASE:.status.phase,DELETED:.metadata.deletionTimestamp,ANNOTATIONS:.metadata.annotations")
	ask("events", 4, "get", "events", in+namespace, "--field-selector=type=Warning", "--sort-by=.lastTimestamp", "--no-headers", "--output=custom-columns=LAST:.lastTimestamp,COUNT:.count,OBJECT:.involvedObject.name,MESSAGE:.message")
	ask("volumes", 9, "get", "pv", `--output=jsonpath={range .items[?(@.spec.claimRef.namespace=="`+namespace+`")]}{.metadata.name} {.status.phase} {.spec.persistentVolumeReclaimPolicy} {.metadata.deletionTimestamp} {.metadata.finalizers}{"\n"}{end}`)
	ask("attached", 9, "get", "volumeattachments", "--no-headers", "--output=custom-columns=VOLUME:.spec.source.persistentVolumeName,NODE:.spec.nodeName,ATTACHED:.status.attached,DELETED:.metadata.deletionTimestamp,ATTACHERROR:.status.attachError.message,DETACHERROR:.status.detachError.message")
	ask("leases", 4, "get", "leases", in+driverNamespace, "--no-headers", "--output=custom-columns=NAME:.metadata.name,HOLDER:.spec.holderIdentity,RENEWED:.spec.renewTime")
	ask("driver", 4, "get", "pods", in+driverNamespace, "--no-headers", "--output=wide")
	return strings.Join(lines, "\n")
}

// volumeReport returns the state of a namespace's volumes, and the last lines about each volume in
// the logs of Kubernetes and of the driver.
func volumeReport(ctx context.Context, namespace string) string {
	volumes, err := env.cluster.Kubectl().Run(ctx, "", "get", "persistentvolumes",
		`--output=jsonpath={range .items[?(@.spec.claimRef.namespace=="`+namespace+`")]}{.metadata.name} {.spec.csi.volumeHandle}{"\n"}{end}`)
	attachments, errAttachments := env.cluster.Kubectl().Run(ctx, "", "get", "volumeattachments", "--output=wide")
	report := []string{fmt.Sprintf("volumes of %s (%v):\n%s", namespace, err, volumes), fmt.Sprintf("all attachments (%v):\n%s", errAttachments, attachments)}
	texts := allLogs(ctx)
	for line := range strings.Lines(volumes) {
		name, handle, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, uuid, _ := strings.Cut(handle, ":")
		for source, text := range texts {
			var found []string
			for l := range strings.Lines(text) {
				if strings.Contains(l, name) || uuid != "" && strings.Contains(l, uuid) {
					l = strings.TrimSpace(l)
					found = append(found, "    "+l[:min(len(l), 1000)]+"\n")
				}
			}
			if len(found) > 0 {
				report = append(report, fmt.Sprintf("%s in %s, the last of %d lines:\n%s", name, source, len(found), strings.Join(found[max(0, len(found)-12):], "")))
			}
		}
	}
	slices.Sort(report[2:])
	return strings.Join(report, "\n")
}

// allLogs returns the logs of the cluster's processes and of the driver's containers.
func allLogs(ctx context.Context) map[string]string {
	texts := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(env.cluster.Logs(), "*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		texts[filepath.Base(file)] = string(text) + because(err)
	}
	pods, err := env.driver.kubectl.Run(ctx, "", "get", "pods", "--output=jsonpath={range .items[*]}{.metadata.name} {.spec.containers[*].name}{\"\\n\"}{end}")
	texts["pods"] = because(err)
	for line := range strings.Lines(pods) {
		words := strings.Fields(line)
		for _, container := range words[1:] {
			text, err := env.driver.kubectl.Run(ctx, "", "logs", words[0], "--container="+container)
			texts[words[0]+"/"+container] = text + because(err)
		}
	}
	return texts
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("\n%v\n", err)
}
