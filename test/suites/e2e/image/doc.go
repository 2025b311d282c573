// Package image writes container images of one layer, as archives that `ctr images import` reads.
// It does not need a daemon, a registry or root privileges, and does not depend on the contents of
// the images.
package image
