// Package observe watches the target and the proxy for people and for monitoring. It provides the
// target's figures and events, the state that metrics report, and the address for scrapes without
// authentication. Packages figures and metrics hold the figures; this one decides when to read
// them.
//
// It must not depend on how requests arrive, and it changes nothing.
package observe
