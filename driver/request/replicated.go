package request

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// ReplicatedTarget replaces the target in the id of a volume with replicas on several targets. No
// target has this name.
const ReplicatedTarget = "replicated"

// Replicated reports whether the id belongs to a volume with several replicas.
func (id VolumeID) Replicated() bool { return id.Target == ReplicatedTarget }

// KeyReplicated is the key of a [Replicated] in the volume context and the publish context.
const KeyReplicated = "replicated"

// A Replicated describes a volume with several replicas to the node. In the volume context, UID and
// Generation are zero, and the replicas have no exports.
type Replicated struct {
	// UID is the UID of the witness.
	UID string `json:"uid,omitzero"`
	// Generation is the generation of the publication.
	Generation uint64 `json:"generation,omitzero"`
	// SizeBytes is the size of the volume.
	SizeBytes int64     `json:"sizeBytes"`
	Replicas  []Replica `json:"replicas"`
}

// A Replica describes a replica of a volume.
type Replica struct {
	Number int `json:"number"`
	// Server is the name of the replica's storage server.
	Server string `json:"server"`
	// UUID is the UUID of the replica's logical volume and of its namespace.
	UUID string `json:"uuid"`
	// Export is the context map that the node uses to connect; see package connect.
	Export map[string]string `json:"export,omitzero"`
}

// Format returns the value of [KeyReplicated].
func (r Replicated) Format() string {
	text, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		panic(err) // cannot fail for strings and numbers
	}
	return string(text)
}

// ParseReplicated parses the value of [KeyReplicated].
func ParseReplicated(text string) (Replicated, error) {
	var r Replicated
	if err := json.Unmarshal([]byte(text), &r, json.RejectUnknownMembers(true)); err != nil {
		return r, fmt.Errorf("%w: %s in the volume's context: %w", ErrInvalid, KeyReplicated, err)
	}
	seen := map[int]bool{}
	for _, x := range r.Replicas {
		if x.UUID == "" || x.Server == "" || x.Number < 0 || x.Number > 2 || seen[x.Number] {
			return r, fmt.Errorf("%w: %s in the volume's context has a replica without a server or UUID, or with an impossible number: %s", ErrInvalid, KeyReplicated, text)
		}
		seen[x.Number] = true
	}
	if len(r.Replicas) != 2 || r.SizeBytes <= 0 {
		return r, fmt.Errorf("%w: %s in the volume's context does not contain a size and two replicas: %s", ErrInvalid, KeyReplicated, text)
	}
	return r, nil
}
