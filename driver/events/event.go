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

// slotOf returns the number of the period of length repeat that contains now. The slots of
// different volumes begin at different times, so that many lasting problems are not reported again
// at the same time.
func slotOf(handle string, now time.Time) int64 {
	sum := sha256.Sum256([]byte(handle))
	offset := int64(binary.BigEndian.Uint32(sum[:4])) % int64(repeat/time.Second)
	return (now.Unix() + offset) / int64(repeat/time.Second)
}

func (r *Reporter) eventOf(k key, v *state, now time.Time) kubernetes.Event {
	e := kubernetes.Event{
		Claim: v.claim, Warning: true, Reason: v.found.Reason, Message: shorten(v.found.Message),
		Component: r.Driver, Instance: r.Instance, Time: now,
	}
	if v.found.Reason == "" {
		e.Warning, e.Reason = false, reasonOver
		e.Message = fmt.Sprintf("the problem %s is over: this volume has no known problem any more", v.reported)
	}
	e.Name = eventName(v.claim, e.Reason, slotOf(k.handle, now))
	return e
}

// eventName returns the name of an Event. As usual, it begins with the name of the object. The rest
// makes the name unique for the claim, the reason and the slot.
func eventName(c kubernetes.Claim, reason string, slot int64) string {
	const mostOfName = 200 // of 253
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d", c.UID, c.Volume, reason, slot))
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
