package controller

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
)

// accessibility returns the topologies from which a volume must be accessible.
func accessibility(r *csi.TopologyRequirement) (placement.Accessibility, error) {
	a := placement.Accessibility{Requisite: segmentsOf(r.GetRequisite()), Preferred: segmentsOf(r.GetPreferred())}
	for _, t := range append(a.Requisite, a.Preferred...) {
		if err := request.CheckTopology(t); err != nil {
			return a, err
		}
	}
	return a, nil
}

func segmentsOf(topologies []*csi.Topology) (segments []map[string]string) {
	for _, t := range topologies {
		segments = append(segments, t.GetSegments())
	}
	return segments
}

// accessibleTopology returns the topologies from which a target's volumes are accessible, or nil if
// they are accessible from everywhere.
func accessibleTopology(t config.Target) []*csi.Topology {
	if len(t.Topology) == 0 {
		return nil
	}
	return []*csi.Topology{{Segments: t.Topology}}
}
