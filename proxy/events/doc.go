// Package events keeps the most recent events of a target and the proxy, and delivers them to any
// number of listeners.
//
// A [Hub] keeps events in a bounded ring. A listener is a position in the ring and has no queue of
// its own, so a slow listener needs no memory. If the events at a listener's position have been
// overwritten, the listener receives an event that reports the gap.
//
// The package must not depend on where events come from, who may see them, or how they are sent.
package events
