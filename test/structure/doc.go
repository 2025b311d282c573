// Package structure holds the rules of who may import whom, each with its reason, as tests. It
// knows packages by their import paths only, and nothing of what they do. The rooms themselves
// are described in DESIGN.md.
package structure
