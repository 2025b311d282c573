// Package observe watches the target and the proxy for people and for monitoring. It provides
// figures and events of the target, the state that metrics report, and the address for scrapes
// without authentication. Packages figures and metrics have the figures; this one reads them in
// time.
//
// It must not depend on how requests arrive, and it changes nothing.
package observe
