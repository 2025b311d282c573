//go:build race

package controller

// mostVolumes is lower under the race detector, which slows the test down.
const mostVolumes = 1_000
