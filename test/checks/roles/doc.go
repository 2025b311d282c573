// Package roles compares the proxy's built-in roles with the programs for which they are made. It
// knows the roles and the driver's source code, and runs neither program.
package roles
