package witness

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/spdkgate/spdkgate/driver/replica"
)

const (
	group      = "spdkgate.io"
	apiVersion = group + "/v1alpha1"
	kind       = "ReplicatedVolume"
	collection = "/apis/" + apiVersion + "/replicatedvolumes"
	// finalizer prevents the removal of the object until the driver has deleted all replicas.
	finalizer = group + "/replicas"
)

// ErrUnreadable means that this version of the driver cannot have written the object, so its
// contents must not be used.
var ErrUnreadable = errors.New("the witness cannot be understood: it was edited by hand, partly restored, or written by a later version of the driver")

// A Place is the location of a replica.
type Place struct {
	// Server is the name of the storage server in the controller's configuration.
	Server string `json:"server"`
	// Lvol is the name of the logical volume: LVSTORE/NAME.
	Lvol string `json:"lvol"`
}

// A Record is a witness as read from the API.
type Record struct {
	Name string
	// UID is the Kubernetes UID of the object. A restored object has a new UID.
	UID     string
	Witness replica.Witness
	// Places contains the location of each replica in Witness.Replicas.
	Places [replica.MaxReplicas]Place
	// Deleting reports whether the deletion of the object has been requested.
	Deleting bool

	resourceVersion string
	metadata        jsontext.Value
}

// same reports whether the contents of two records are equal.
func (r Record) same(other Record) bool {
	return r.Witness == other.Witness && r.Places == other.Places
}

// These types are the JSON form of a witness. Pointers distinguish missing fields from zero values.
type (
	objectJSON struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   jsontext.Value `json:"metadata"`
		Spec       *specJSON      `json:"spec"`
		Status     *statusJSON    `json:"status,omitempty"`
	}
	specJSON struct {
		Replicas []replicaJSON `json:"replicas"`
		Writer   *writerJSON   `json:"writer"`
	}
	replicaJSON struct {
		Number *replica.ID `json:"number"`
		Place
	}
	writerJSON struct {
		Node       *string `json:"node"`
		Generation *uint64 `json:"generation"`
	}
	// statusJSON is the object's status, which is missing until the first superblocks have been
	// written.
	statusJSON struct {
		Epoch     *uint64   `json:"epoch"`
		InSync    []int     `json:"inSync"`
		Clean     *bool     `json:"clean"`
		Logged    []int     `json:"logged"`
		Discarded []int     `json:"discarded"`
		Held      *heldJSON `json:"held"`
	}
	// heldJSON contains the replicas in the mirror of one publication. Other publications ignore
	// it.
	heldJSON struct {
		Generation *uint64 `json:"generation"`
		Replicas   []int   `json:"replicas"`
	}
	metadataJSON struct {
		Name              string   `json:"name"`
		UID               string   `json:"uid,omitempty"`
		ResourceVersion   string   `json:"resourceVersion,omitempty"`
		DeletionTimestamp *string  `json:"deletionTimestamp,omitempty"`
		Finalizers        []string `json:"finalizers,omitempty"`
	}
)

// decode returns the record in an object's JSON form. It rejects an object with an unknown, missing
// or contradictory field.
func decode(text []byte) (Record, error) {
	r, err := decodeObject(text)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return r, nil
}

func decodeObject(text []byte) (r Record, err error) {
	var o objectJSON
	if err := json.Unmarshal(text, &o, json.RejectUnknownMembers(true)); err != nil {
		return r, err
	}
	if o.APIVersion != apiVersion || o.Kind != kind {
		return r, fmt.Errorf("it is a %q of %q, not a %s of %s", o.Kind, o.APIVersion, kind, apiVersion)
	}
	var m metadataJSON
	if err := json.Unmarshal(o.Metadata, &m); err != nil {
		return r, err
	}
	if m.Name == "" || m.UID == "" || m.ResourceVersion == "" {
		return r, errors.New("metadata lacks a name, uid or resourceVersion")
	}
	if !slices.Contains(m.Finalizers, finalizer) {
		return r, fmt.Errorf("metadata.finalizers lacks %s", finalizer)
	}
	r = Record{Name: m.Name, UID: m.UID, Deleting: m.DeletionTimestamp != nil, resourceVersion: m.ResourceVersion, metadata: o.Metadata}
	if err := r.readSpec(o.Spec); err != nil {
		return r, fmt.Errorf("spec: %w", err)
	}
	if err := r.readStatus(o.Status); err != nil {
		return r, fmt.Errorf("status: %w", err)
	}
	return r, nil
}

func (r *Record) readSpec(s *specJSON) error {
	switch {
	case s == nil:
		return errors.New("missing")
	case s.Writer == nil || s.Writer.Node == nil || s.Writer.Generation == nil:
		return errors.New("writer has no node or no generation")
	case *s.Writer.Node != "" && *s.Writer.Generation == 0:
		return errors.New("writer has a node without a generation")
	case len(s.Replicas) == 0:
		return errors.New("replicas is empty")
	}
	r.Witness.Writer = replica.Writer{Node: *s.Writer.Node, Generation: *s.Writer.Generation}
	for _, p := range s.Replicas {
		if p.Number == nil || *p.Number >= replica.MaxReplicas || r.Witness.Replicas.Has(*p.Number) {
			return errors.New("the number of a replica is missing, too large or used twice")
		}
		if err := p.Place.check(); err != nil {
			return fmt.Errorf("replica %d: %w", *p.Number, err)
		}
		r.Witness.Replicas |= replica.SetOf(*p.Number)
		r.Places[*p.Number] = p.Place
	}
	return nil
}

func (p Place) check() error {
	lvstore, name, found := strings.Cut(p.Lvol, "/")
	if p.Server == "" || !found || lvstore == "" || name == "" {
		return errors.New("the server is missing, or the lvol is not LVSTORE/NAME")
	}
	return nil
}

func (r *Record) readStatus(s *statusJSON) error {
	if s == nil {
		return nil
	}
	if s.Epoch == nil || s.InSync == nil || s.Clean == nil || s.Logged == nil || s.Discarded == nil || s.Held == nil || s.Held.Generation == nil || s.Held.Replicas == nil {
		return errors.New("epoch, inSync, clean, logged, discarded or held is missing")
	}
	w := &r.Witness
	var sets [4]replica.Set
	for i, list := range [][]int{s.InSync, s.Logged, s.Discarded, s.Held.Replicas} {
		set, err := setOf(list)
		if err != nil {
			return err
		}
		sets[i] = set
	}
	w.Created, w.Epoch, w.Clean, w.InSync, w.Logged, w.Discarded = true, *s.Epoch, *s.Clean, sets[0], sets[1], sets[2]
	if *s.Held.Generation == w.Writer.Generation {
		w.Held = sets[3]
	}
	switch {
	case w.Epoch == 0 || w.InSync == 0:
		return errors.New("epoch is 0, or inSync is empty")
	case *s.Held.Generation > w.Writer.Generation:
		return errors.New("held.generation is later than writer.generation")
	case !w.Replicas.Contains(w.InSync | w.Logged | w.Discarded | w.Held):
		return errors.New("inSync, logged, discarded or held contains a replica that spec does not have")
	case w.InSync&(w.Logged|w.Discarded) != 0:
		return errors.New("a replica in inSync is also in logged or discarded")
	}
	return nil
}

// setOf converts a list of replica numbers to a set.
func setOf(list []int) (set replica.Set, err error) {
	for _, n := range list {
		id := replica.ID(n)
		if n < 0 || n >= replica.MaxReplicas || set.Has(id) {
			return 0, errors.New("the number of a replica is too large or used twice")
		}
		set |= replica.SetOf(id)
	}
	return set, nil
}

func listOf(set replica.Set) []int {
	list := make([]int, 0, set.Len())
	for _, id := range set.IDs() {
		list = append(list, int(id))
	}
	return list
}

// encode returns the object's JSON form. It contains the metadata that was read, so the API server
// refuses the write if the stored object has changed since then.
func (r Record) encode() ([]byte, error) {
	return json.Marshal(objectJSON{apiVersion, kind, r.metadata, encodeSpec(r.Witness, r.Places), encodeStatus(r.Witness)})
}

func encodeSpec(w replica.Witness, places [replica.MaxReplicas]Place) *specJSON {
	s := &specJSON{Writer: &writerJSON{&w.Writer.Node, &w.Writer.Generation}}
	for _, id := range w.Replicas.IDs() {
		s.Replicas = append(s.Replicas, replicaJSON{&id, places[id]})
	}
	return s
}

func encodeStatus(w replica.Witness) *statusJSON {
	if !w.Created {
		return nil
	}
	return &statusJSON{
		Epoch: &w.Epoch, InSync: listOf(w.InSync), Clean: &w.Clean, Logged: listOf(w.Logged), Discarded: listOf(w.Discarded),
		Held: &heldJSON{&w.Writer.Generation, listOf(w.Held)},
	}
}

// newObject returns the JSON form of the witness of a volume that is being created.
func newObject(name string, w replica.Witness, places [replica.MaxReplicas]Place) ([]byte, error) {
	metadata, err := json.Marshal(metadataJSON{Name: name, Finalizers: []string{finalizer}})
	if err != nil {
		return nil, err
	}
	return json.Marshal(objectJSON{apiVersion, kind, metadata, encodeSpec(w, places), nil}, json.Deterministic(true))
}
