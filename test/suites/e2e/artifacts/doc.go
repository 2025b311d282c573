// Package artifacts builds the programs of a Kubernetes cluster and unpacks Debian packages, into a
// directory of the user's cache that the hash of what was built names. Existing results are not
// built again, so an interrupted build continues where it ended. The package knows neither what the
// programs do nor how they are started.
package artifacts
