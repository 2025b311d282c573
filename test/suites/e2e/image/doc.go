// Package image writes container images of one layer, as archives that `ctr images import` reads.
// It needs neither a daemon, a registry nor root. It knows nothing of what is in the images.
package image
