// Package artifacts builds the programs of a Kubernetes cluster and unpacks Debian packages, into a
// directory in the user's cache that is named after a hash of what it contains. Existing results
// are not built again, so an interrupted build continues where it stopped. The package knows
// neither what the programs do nor how they are started.
package artifacts
