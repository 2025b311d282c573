//go:build race

package drivertest

const race = true
