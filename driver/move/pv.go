package move

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
)

// ErrPV means that the input is not a PersistentVolume of this driver.
var ErrPV = errors.New("invalid PersistentVolume")

// A PV is a PersistentVolume as printed by `kubectl get pv NAME -o json`. Fields that a move does
// not affect remain unchanged.
type PV struct {
	object, spec, csi map[string]any
	Name              string
	Volume            request.VolumeID
	// Context contains the volume context.
	Context map[string]string
	// Filesystem reports whether Kubernetes mounts the volume. Otherwise, the volume is a raw block
	// device.
	Filesystem bool
}

// ParsePV parses a PersistentVolume that belongs to driver.
func ParsePV(text []byte, driver string) (PV, error) {
	var p PV
	if err := json.Unmarshal(text, &p.object); err != nil {
		return PV{}, fmt.Errorf("%w: %w", ErrPV, err)
	}
	p.spec, _ = p.object["spec"].(map[string]any)
	p.csi, _ = p.spec["csi"].(map[string]any)
	metadata, _ := p.object["metadata"].(map[string]any)
	p.Name, _ = metadata["name"].(string)
	if p.object["kind"] != "PersistentVolume" || p.Name == "" {
		return PV{}, fmt.Errorf("%w: expected one object, as printed by kubectl get pv NAME -o json", ErrPV)
	}
	if p.csi == nil {
		return PV{}, fmt.Errorf("%w: %s is not a volume of a CSI driver", ErrPV, p.Name)
	}
	if p.csi["driver"] != driver {
		return PV{}, fmt.Errorf("%w: %s belongs to driver %v, not %s", ErrPV, p.Name, p.csi["driver"], driver)
	}
	handle, _ := p.csi["volumeHandle"].(string)
	var err error
	if p.Volume, err = request.ParseVolumeID(handle); err != nil {
		return PV{}, fmt.Errorf("%w: %s: %w", ErrPV, p.Name, err)
	}
	mode, given := p.spec["volumeMode"]
	p.Filesystem = !given || mode == "Filesystem" // Kubernetes' default
	p.Context = map[string]string{}
	attributes, _ := p.csi["volumeAttributes"].(map[string]any)
	for key, value := range attributes {
		p.Context[key], _ = value.(string)
	}
	return p, nil
}

// ofTheOld lists the volume attributes that describe the location of a volume. The PersistentVolume
// of the copy contains the copy's attributes instead.
var ofTheOld = []string{
	connect.KeyTargetType, connect.KeyTargetAddr, connect.KeyTargetPort, connect.KeyTargetAddrs, connect.KeyNQN, connect.KeyIQN,
	connect.KeyModel, connect.KeyLvolSize, connect.KeyNSUUID, connect.KeyLoopDir, request.KeyStore, request.KeyMayFormat, hostauth.KeyMethod,
}

// For returns the PersistentVolume of a copy, as JSON. It has a new name, because the name and the
// volume of a PersistentVolume cannot be changed. Only the original's PersistentVolumeClaim may
// bind to it.
func (p PV) For(r Result) ([]byte, error) {
	id, err := request.ParseVolumeID(r.id())
	if err != nil {
		return nil, err
	}
	attributes := maps.Clone(p.Context)
	for _, key := range ofTheOld {
		delete(attributes, key)
	}
	for key, value := range r.Volume.GetVolumeContext() {
		attributes[key] = value
	}
	attributes[request.KeyMayFormat] = strconv.FormatBool(r.Empty)
	newCSI, spec := maps.Clone(p.csi), maps.Clone(p.spec)
	newCSI["volumeHandle"], newCSI["volumeAttributes"] = id.String(), attributes
	spec["csi"] = newCSI
	spec["capacity"] = map[string]any{"storage": strconv.FormatInt(r.Volume.GetCapacityBytes(), 10)}
	delete(spec, "nodeAffinity")
	if terms := nodeSelector(r.Volume.GetAccessibleTopology()); len(terms) > 0 {
		spec["nodeAffinity"] = map[string]any{"required": map[string]any{"nodeSelectorTerms": terms}}
	}
	if claim, ok := spec["claimRef"].(map[string]any); ok {
		spec["claimRef"] = map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim["namespace"], "name": claim["name"]}
	}
	metadata := map[string]any{"name": "pvc-" + id.UUID}
	before, _ := p.object["metadata"].(map[string]any)
	if labels, ok := before["labels"]; ok {
		metadata["labels"] = labels
	}
	metadata["annotations"] = annotations(before["annotations"])
	return json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}, "", "  ")
}

// annotations returns the annotations that sidecars set on the volumes that they create, including
// the Secret for deletion.
func annotations(object any) map[string]any {
	kept := map[string]any{}
	all, _ := object.(map[string]any)
	for _, key := range []string{
		"pv.kubernetes.io/provisioned-by",
		"volume.kubernetes.io/provisioner-deletion-secret-name",
		"volume.kubernetes.io/provisioner-deletion-secret-namespace",
	} {
		if value, ok := all[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

// nodeSelector returns node selector terms for topologies, as csi-provisioner writes them.
func nodeSelector(topologies []*csi.Topology) (terms []any) {
	for _, t := range topologies {
		var expressions []any
		for _, key := range slices.Sorted(maps.Keys(t.GetSegments())) {
			expressions = append(expressions, map[string]any{"key": key, "operator": "In", "values": []string{t.GetSegments()[key]}})
		}
		terms = append(terms, map[string]any{"matchExpressions": expressions})
	}
	return terms
}
