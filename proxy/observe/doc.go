// Package observe watches the target and the proxy, for people and for monitoring. It provides the
// target's figures and events, the state that metrics report, and the address at which metrics can
// be scraped without authentication. The values themselves come from packages figures and metrics;
// this package decides when they are read.
//
// The package must not depend on the way requests arrive, and must not change anything on the
// target.
package observe
