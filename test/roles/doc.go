// Package roles holds the proxy's built-in roles against the programs that they
// are made for. It knows the roles and the driver's code, and runs neither.
package roles
