package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckTopology checks segments of a topology as CSI wants them, which is as Kubernetes wants labels. Errors are of kind
// [ErrInvalid].
func CheckTopology(segments map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		problems := validation.IsQualifiedName(key)
		if len(problems) == 0 && segments[key] == "" {
			problems = []string{"the value is empty"}
		}
		if problems = append(problems, validation.IsValidLabelValue(segments[key])...); len(problems) > 0 {
			return fmt.Errorf("%w: %s=%s is not a label: %s", ErrInvalid, key, segments[key], strings.Join(problems, "; "))
		}
	}
	return nil
}

// ParseTopology reads segments of a topology, key=value with commas between them. It skips those without a value: a
// manifest for all nodes fills in a label, which some of them may not have.
func ParseTopology(text string) (map[string]string, error) {
	segments := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if _, twice := segments[key]; !ok || twice {
			return nil, fmt.Errorf("%w: topology %q must be like topology.kubernetes.io/zone=a, with each key once", ErrInvalid, text)
		}
		if value != "" {
			segments[key] = value
		}
	}
	return segments, CheckTopology(segments)
}
