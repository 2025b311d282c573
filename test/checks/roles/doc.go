// Package roles compares the proxy's built-in roles with the programs that they are made for. It
// knows the roles and the driver's source code, and runs neither program.
package roles
