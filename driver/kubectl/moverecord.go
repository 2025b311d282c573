package kubectl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
)

// moveLabel is the value of the label app of all objects that a move creates in the driver's
// namespace.
const moveLabel = "spdkcsi-move"

// These are the states of a move that determine how it may continue.
const (
	stateCopying   = "copying"
	stateSwitching = "switching" // the claim was, or is about to be, deleted
	stateKeeping   = "keeping"   // the move is being given up
	stateDeleted   = "deleted"   // the original is deleted
)

// A record is the ConfigMap of a move. It contains the claim and both PersistentVolumes.
type record struct {
	configMap  object
	state      string
	claim, old object
	copied     object // PersistentVolume of the copy; nil until the volume is copied
	parameters map[string]string
}

func (r *record) name() string { return r.configMap.name() }

// isOriginal reports whether a claim is the one that the move began with.
func (r *record) isOriginal(claim object) bool { return claim != nil && claim.uid() == r.claim.uid() }

// usesCopy reports whether a claim uses the copy.
func (r *record) usesCopy(claim object) bool {
	return claim != nil && r.copied != nil && claim.text("spec", "volumeName") == r.copied.name()
}

// recordName returns the name of the ConfigMap and of the Job that move a claim. The names of
// namespaces and claims are too long for the name of a Job.
func (m Move) recordName() string {
	sum := sha256.Sum256([]byte(m.claimName()))
	return moveLabel + "-" + hex.EncodeToString(sum[:16])
}

// The keys of the ConfigMap. The Job reads the original's PersistentVolume.
const (
	keyNamespace, keyClaimName, keyState = "namespace", "claim", "state"
	keyClaim, keyOld, keyCopy            = "claim.json", "old.json", "new.json"
	keyParameters                        = "parameters.json"
)

// loadRecord returns the record of the claim's move, or nil if no move has begun.
func (m Move) loadRecord(ctx context.Context) (*record, error) {
	o, err := m.find(ctx, configMapObjects(m.Client.Namespace), m.recordName())
	if err != nil || o == nil {
		return nil, err
	}
	r, err := parseRecord(o)
	if err == nil && (o.text("data", keyNamespace) != m.Namespace || o.text("data", keyClaimName) != m.Claim) {
		err = fmt.Errorf("ConfigMap %s/%s does not belong to claim %s", m.Client.Namespace, m.recordName(), m.claimName())
	}
	return r, err
}

// parseRecord returns the record that a ConfigMap contains.
func parseRecord(o object) (*record, error) {
	r := &record{configMap: o, state: o.text("data", keyState)}
	var err error
	for key, to := range map[string]*object{keyClaim: &r.claim, keyOld: &r.old, keyCopy: &r.copied} {
		if text := o.text("data", key); err == nil && text != "" {
			*to, err = parseObject([]byte(text))
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(o.text("data", keyParameters)), &r.parameters)
	}
	if err == nil && (r.state == "" || r.claim.uid() == "" || r.old.uid() == "") {
		err = errors.New("it is not complete")
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s, the record of a move: %w", o.name(), err)
	}
	return r, nil
}

// recordsOfMoves returns the records of all moves, by the UID of the original's PersistentVolume.
func (c Client) recordsOfMoves(ctx context.Context) (map[string]*record, error) {
	found, err := list[object](ctx, c, configMapObjects(c.Namespace).path, url.Values{"labelSelector": {"app=" + moveLabel}})
	records := map[string]*record{}
	for _, o := range found {
		r, invalid := parseRecord(o)
		if invalid != nil {
			return nil, invalid
		}
		records[r.old.uid()] = r
	}
	return records, err
}

// createRecord records the begin of a move.
func (m Move) createRecord(ctx context.Context, claim, volume object) (*record, error) {
	r := &record{state: stateCopying, claim: claim, old: volume, parameters: m.Parameters}
	data, err := m.data(r)
	if err != nil {
		return nil, err
	}
	r.configMap, err = m.create(ctx, configMapObjects(m.Client.Namespace), object{
		"metadata": map[string]any{"name": m.recordName(), "namespace": m.Client.Namespace, "labels": map[string]any{"app": moveLabel}},
		"data":     data,
	})
	return r, err
}

// save stores a record. It fails if another command has changed the record since it was read.
func (m Move) save(ctx context.Context, r *record) error {
	data, err := m.data(r)
	if err != nil {
		return err
	}
	r.configMap.set(data, "data")
	r.configMap, err = m.replace(ctx, configMapObjects(m.Client.Namespace), r.configMap)
	return err
}

func (m Move) data(r *record) (map[string]any, error) {
	data := map[string]any{keyNamespace: m.Namespace, keyClaimName: m.Claim, keyState: r.state}
	values := map[string]any{keyClaim: r.claim, keyOld: r.old, keyParameters: r.parameters}
	if r.copied != nil {
		values[keyCopy] = r.copied
	}
	for key, value := range values {
		text, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return nil, err
		}
		data[key] = string(text)
	}
	return data, nil
}

// accepts fails if the command does not continue the recorded move.
func (m Move) accepts(r *record) error {
	switch {
	case r.state == stateKeeping:
		return fmt.Errorf("%w, and is being given up: run %s to its end, and repeat this command", ErrOtherMove, m.again("--keep-original"))
	case r.state == stateDeleted:
		return fmt.Errorf("%w, and its original is deleted: run %s to its end, and repeat this command", ErrOtherMove, m.again("--delete-original"))
	case len(m.Parameters) > 0 && !maps.Equal(m.Parameters, r.parameters):
		return fmt.Errorf("%w with the parameters %v: repeat this command without --parameter to continue it. To move the volume elsewhere, first run %s or, if the claim already uses the copy, %s",
			ErrOtherMove, r.parameters, m.again("--keep-original"), m.again("--delete-original"))
	}
	return nil
}
