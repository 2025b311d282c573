// Package roles compares the proxy's built-in roles with the needs of the programs that use them.
// It depends on the roles and on the driver's source code, and does not run either program.
package roles
