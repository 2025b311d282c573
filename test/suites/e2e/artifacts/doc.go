// Package artifacts builds the programs of a Kubernetes cluster and unpacks Debian packages, into a
// directory in the user's cache whose name is a hash of the contents. It does not build existing
// results again, so an interrupted build can be continued where it stopped. The package does not
// depend on what the programs do or how they are started.
package artifacts
