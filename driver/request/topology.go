package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckTopology checks the segments of a topology. CSI has the same rules for segments as
// Kubernetes for labels. Errors wrap [ErrInvalid].
func CheckTopology(segments map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		problems := validation.IsQualifiedName(key)
		if len(problems) == 0 && segments[key] == "" {
			problems = []string{"the value is empty"}
		}
		if problems = append(problems, validation.IsValidLabelValue(segments[key])...); len(problems) > 0 {
			return fmt.Errorf("%w: %s=%s is not a valid label: %s", ErrInvalid, key, segments[key], strings.Join(problems, "; "))
		}
	}
	return nil
}

// ParseTopology parses the segments of a topology: key=value, separated by commas. It skips
// segments without a value, because a manifest for all nodes may insert the value of a label that
// some nodes lack.
func ParseTopology(text string) (map[string]string, error) {
	segments := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if _, twice := segments[key]; !ok || twice {
			return nil, fmt.Errorf("%w: topology %q must have the form topology.kubernetes.io/zone=a, and contain each key only once", ErrInvalid, text)
		}
		if value != "" {
			segments[key] = value
		}
	}
	return segments, CheckTopology(segments)
}
