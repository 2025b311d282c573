package connect

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A simulated target describes its exports in its data directory:
//
//	simulated-spdk-target                     marker: directories without it are not used
//	exports/<NQN or IQN, path-escaped>/hosts  allowed hosts, one per line, or *
//	exports/<…>/namespaces/<UUID>             symlink to the volume's file, within the data directory
const (
	simulationMarker = "simulated-spdk-target"
	exportsDir       = "exports"
	hostsFile        = "hosts"
	namespacesDir    = "namespaces"
)

// simulatedVolume returns the file of an export and its namespace's UUID, if this host is allowed.
func simulatedVolume(e Export, h Host) (path, id string, err error) {
	root, err := filepath.EvalSymlinks(e.LoopDir)
	if err != nil {
		return "", "", fmt.Errorf("%w: %s: the simulated target's data directory must be reachable under this path on the node: %w", ErrUnreachable, KeyLoopDir, err)
	}
	if _, err := os.Lstat(filepath.Join(root, simulationMarker)); err != nil {
		return "", "", fmt.Errorf("%w: %s %q is not the data directory of a simulated target: it has no file %s (%w)", ErrUnsupported, KeyLoopDir, e.LoopDir, simulationMarker, err)
	}
	exported := filepath.Join(root, exportsDir, url.PathEscape(e.Target()))
	hosts, err := os.ReadFile(filepath.Join(exported, hostsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("%w: the simulated target does not export %s", ErrNoSubsystem, e.Target())
	} else if err != nil {
		return "", "", fmt.Errorf("read the allowed hosts: %w", err)
	}
	if !hostAllowed(string(hosts), e, h) {
		return "", "", fmt.Errorf("%w: %s does not allow host %s: the volume must be published to this node first", ErrRefused, e.Target(), nameFor(h, e))
	}
	entries, err := os.ReadDir(filepath.Join(exported, namespacesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("list namespaces: %w", err)
	}
	all := make([]namespace, len(entries))
	for i, entry := range entries {
		all[i] = namespace{name: entry.Name(), uuid: strings.ToLower(entry.Name())}
	}
	ns, err := choose(e, all)
	if err != nil {
		return "", "", err
	}
	path, err = filepath.EvalSymlinks(filepath.Join(exported, namespacesDir, ns.name))
	if err != nil {
		return "", "", fmt.Errorf("%w: the namespace's file does not exist: %w", ErrNoNamespace, err)
	}
	if !strings.HasPrefix(path, root+"/") {
		return "", "", fmt.Errorf("%w: the namespace's file %s is outside the data directory %s", ErrUnsupported, path, root)
	}
	return path, ns.uuid, nil
}

// nameFor returns the name that the export's target uses to identify a host.
func nameFor(h Host, e Export) string {
	if e.NQN == "" {
		return h.IQN
	}
	return h.NQN
}

func hostAllowed(list string, e Export, h Host) bool {
	lines := strings.Fields(list)
	return slices.Contains(lines, "*") || slices.Contains(lines, nameFor(h, e))
}

// label returns the label of the loop devices that this package creates for a host and an export.
// The host is part of the label because several hosts share one machine in tests, and each host has
// its own device. Without a UUID, label returns the common prefix of the host's labels for the
// export's target. The kernel limits labels to 63 characters.
func label(h Host, e Export, id string) string {
	return labelPrefix + h.UUID[:8] + labelSuffix(e, id)
}

const labelPrefix = "spdkgate:"

// labelSuffix returns the part of the label that is the same for all hosts.
func labelSuffix(e Export, id string) string {
	sum := sha256.Sum256([]byte(e.LoopDir + "\x00" + e.Target()))
	return fmt.Sprintf(":%x:%s", sum[:4], id)
}

// isOfOtherHost reports whether a device's label belongs to another host of the same export.
func isOfOtherHost(label, own string) bool {
	suffix := len(labelPrefix) + 8
	return label != own && len(label) == len(own) && strings.HasPrefix(label, labelPrefix) && label[suffix:] == own[suffix:]
}
