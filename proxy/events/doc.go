// Package events keeps the most recent events of a target and of the proxy, and delivers them to
// any number of listeners.
//
// A [Hub] has a bounded ring of events. A listener has a position in the ring but no queue of its
// own, so a slow one takes no memory. If its position leaves the ring, it receives an event that
// reports this.
//
// The package must not depend on where events come from, who may see them, or how they are sent.
package events
