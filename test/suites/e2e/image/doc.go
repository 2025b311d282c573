// Package image writes container images of one layer, as archives that `ctr images import` reads.
// It does not need a daemon, a registry or root. It knows nothing about the contents of the images.
package image
