// Package placement decides on which target and lvstore a volume is made, and makes sure that it is made once: it looks
// for the volume everywhere it may be before it makes it anywhere.
//
// It may not know gRPC or CSI's messages, nor how volumes are exported.
package placement
