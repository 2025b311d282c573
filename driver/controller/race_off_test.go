//go:build !race

package controller

const mostVolumes = 10_000
