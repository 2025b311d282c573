// Package observe watches the target and the proxy, for people and for monitoring. It provides the
// target's figures and events, the state that metrics report, and the address at which metrics can
// be scraped without authentication. Packages figures and metrics contain the figures; this package
// decides when to read them.
//
// The package must not depend on how requests arrive, and must not change anything on the target.
package observe
