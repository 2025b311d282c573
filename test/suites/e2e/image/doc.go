// Package image writes container images with a single layer, as archives that `ctr images import`
// can read. It does not need a daemon, a registry or root privileges, and does not depend on the
// contents of the images.
package image
