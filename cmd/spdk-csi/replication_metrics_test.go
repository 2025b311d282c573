package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/metrics"
)

func TestMetricsContainReplicatedVolumes(t *testing.T) {
	for want, state := range map[metrics.ReplicatedVolume]heal.State{
		{Volume: "v", InSync: 2, Rebuilt: -1}:                {},
		{Volume: "v", InSync: 2, Rebuilt: -1, Waiting: true}: {Waiting: true, Problem: "the API server does not respond"},
		{Volume: "v", InSync: 0, Rebuilt: -1}:                {Problem: "its mirror is not running"},
		{Volume: "v", InSync: 1, Rebuilt: -1}:                {Degraded: true, Problem: "server b does not respond"},
		{Volume: "v", InSync: 1, Rebuilt: 0.25}:              {Degraded: true, Synced: 1, Regions: 4},
	} {
		assert.Equal(t, []metrics.ReplicatedVolume{want}, replicatedVolumes(map[string]heal.State{"v": state}))
	}
}
