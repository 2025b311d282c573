//go:build race

package controller

// mostVolumes is lower under the race detector, because the detector slows the test down.
const mostVolumes = 1_000
