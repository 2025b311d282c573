package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// repeat is the time after which an Event about a lasting problem is written again. The API server
// deletes Events after an hour by default.
const repeat = 30 * time.Minute

// reasonOver is the reason of an Event about the end of a problem.
const reasonOver = "VolumeRecovered"

// slotOf returns the number of the period of length repeat that contains now. In each slot, there
// is at most one Event about a problem, and one about its end. The slots of different problems
// begin at different times, so that many lasting problems are not reported again at the same time.
func slotOf(k key, now time.Time) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", k.handle, k.reason))
	offset := int64(binary.BigEndian.Uint32(sum[:4])) % int64(repeat/time.Second)
	return (now.Unix() + offset) / int64(repeat/time.Second)
}

// dueAgain reports whether a lasting problem must be reported again.
func dueAgain(k key, reported, now time.Time) bool {
	return slotOf(k, reported) != slotOf(k, now) && now.Sub(reported) >= repeat/2
}

func (r *Reporter) eventOf(k key, f *finding, now time.Time) kubernetes.Event {
	e := kubernetes.Event{
		Claim: f.claim, Warning: true, Reason: k.reason, Message: shorten(f.condition.Message),
		Component: r.Driver, Instance: r.Instance, Time: now,
	}
	if f.rounds < 0 {
		e.Warning, e.Reason = false, reasonOver
		e.Message = fmt.Sprintf("the problem %s of this volume is over", k.reason)
	}
	e.Name = eventName(f.claim, k, e.Reason, slotOf(k, now))
	return e
}

// eventName returns the name of an Event. As usual, it begins with the name of the object. The rest
// makes the name unique for the volume, the problem, whether it is over, and the slot.
func eventName(c kubernetes.Claim, k key, reason string, slot int64) string {
	const mostOfName = 200 // of 253
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d", c.UID, k.handle, k.reason, reason, slot))
	return strings.TrimRight(c.Name[:min(len(c.Name), mostOfName)], "-.") + "." + hex.EncodeToString(sum[:8])
}

// shorten limits a message to the length that Kubernetes allows, and escapes unsafe characters,
// which names on the target may contain.
func shorten(message string) string {
	const most = 1000
	message = printable.String(message)
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + "…"
}
