//go:build race

package controller

// mostVolumes is fewer under the race detector, which is slow.
const mostVolumes = 1_000
