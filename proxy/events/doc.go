// Package events keeps the most recent events of a target and of the proxy, and delivers them to
// any number of listeners.
//
// A [Hub] has a bounded ring of events. A listener has a position in the ring but no separate
// queue, so a slow listener takes no memory. If the events at a listener's position have been
// overwritten, it receives an event that reports the gap.
//
// The package must not depend on where events come from, who may see them, or how they are sent.
package events
