package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spdkgate/spdkgate/driver/request"
)

// Known contains the records in Kubernetes about the driver's volumes.
type Known struct {
	// Volumes contains the PersistentVolumes, by volume id.
	Volumes map[string]PV
	// Snapshots contains the ids of snapshots. It is nil if the list contains no snapshots of this
	// driver, which means that the existing snapshots are unknown.
	Snapshots map[string]bool
	// Attached contains the nodes that volumes are attached or being attached to, by volume id. It
	// is nil if the list contains no attachments of this driver.
	Attached map[string][]Attachment
}

// A PV describes a PersistentVolume.
type PV struct {
	Name  string // empty if the list contained only ids
	Bytes int64  // 0 if unknown
	Going bool   // the volume is being deleted
	// ByHand means that nothing shows that the driver created the volume.
	ByHand bool
}

// An Attachment is a node that a volume is attached to, being attached to, or being detached from.
type Attachment struct {
	Node string
	Done bool // the volume is attached, and not being detached
}

// ParseKnown reads the records in Kubernetes about a driver's volumes. The text is either the JSON
// output of kubectl for PersistentVolumes, VolumeAttachments and VolumeSnapshotContents, in one or
// several documents, or a list of volume ids, one per line.
func ParseKnown(text []byte, driverName string) (*Known, error) {
	p := parser{driver: driverName, known: &Known{Volumes: map[string]PV{}}, handles: map[string]string{}}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return p.known, p.lines(text)
	}
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	for {
		var o object
		if err := json.UnmarshalDecode(d, &o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the list of volumes is not the output of kubectl get -o json: %w", err)
		}
		if err := p.add(o); err != nil {
			return nil, err
		}
	}
	p.attach()
	return p.known, nil
}

// An object contains the fields that this package reads from objects of these Kubernetes kinds.
type object struct {
	Kind     string   `json:"kind"`
	Items    []object `json:"items"`
	Metadata struct {
		Name              string `json:"name"`
		DeletionTimestamp string `json:"deletionTimestamp"`
		Continue          string `json:"continue"`
	} `json:"metadata"`
	Spec struct {
		CSI *struct {
			Driver           string            `json:"driver"`
			VolumeHandle     string            `json:"volumeHandle"`
			VolumeAttributes map[string]string `json:"volumeAttributes"`
		} `json:"csi"`
		Capacity struct {
			Storage string `json:"storage"`
		} `json:"capacity"`
		ReclaimPolicy string `json:"persistentVolumeReclaimPolicy"`
		Attacher      string `json:"attacher"`
		Driver        string `json:"driver"`
		NodeName      string `json:"nodeName"`
		Source        struct {
			PersistentVolumeName string `json:"persistentVolumeName"`
			SnapshotHandle       string `json:"snapshotHandle"`
		} `json:"source"`
	} `json:"spec"`
	Status struct {
		Phase          string `json:"phase"`
		Attached       bool   `json:"attached"`
		SnapshotHandle string `json:"snapshotHandle"`
	} `json:"status"`
}

type parser struct {
	driver      string
	known       *Known
	handles     map[string]string // volume ids by name of the PV
	attachments []object
}

func (p *parser) add(o object) error {
	if o.Metadata.Continue != "" {
		return errors.New("the list of volumes is one page of several: use kubectl get -o json without --limit")
	}
	kind, isList := strings.CutSuffix(o.Kind, "List")
	if isList {
		for _, item := range o.Items {
			if item.Kind == "" {
				item.Kind = kind
			}
			if err := p.add(item); err != nil {
				return err
			}
		}
		return nil
	}
	switch o.Kind {
	case "PersistentVolume":
		return p.addVolume(o)
	case "VolumeAttachment":
		if o.Spec.Attacher == p.driver {
			p.attachments = append(p.attachments, o)
		}
	case "VolumeSnapshotContent":
		if o.Spec.Driver != p.driver {
			break
		}
		if p.known.Snapshots == nil {
			p.known.Snapshots = map[string]bool{}
		}
		for _, handle := range []string{o.Status.SnapshotHandle, o.Spec.Source.SnapshotHandle} {
			if handle != "" {
				p.known.Snapshots[handle] = true
			}
		}
	default:
		return fmt.Errorf("the list of volumes has an object of kind %q: use the output of kubectl get pv,volumeattachment,volumesnapshotcontent -o json", o.Kind)
	}
	return nil
}

func (p *parser) addVolume(o object) error {
	if o.Spec.CSI == nil || o.Spec.CSI.Driver != p.driver {
		return nil
	}
	size, err := resource.ParseQuantity(o.Spec.Capacity.Storage)
	if err != nil {
		return fmt.Errorf("PersistentVolume %s: capacity %q: %w", o.Metadata.Name, o.Spec.Capacity.Storage, err)
	}
	handle := o.Spec.CSI.VolumeHandle
	p.handles[o.Metadata.Name] = handle
	p.known.Volumes[handle] = PV{
		Name: o.Metadata.Name, Bytes: size.Value(),
		Going:  o.Metadata.DeletionTimestamp != "" || (o.Status.Phase == "Released" || o.Status.Phase == "Failed") && o.Spec.ReclaimPolicy == "Delete",
		ByHand: o.Spec.CSI.VolumeAttributes[request.KeyStore] == "" && o.Spec.CSI.VolumeAttributes[request.KeyMayFormat] == "",
	}
	return nil
}

// attach adds the attachments, which refer to PersistentVolumes by name.
func (p *parser) attach() {
	for _, o := range p.attachments {
		if p.known.Attached == nil {
			p.known.Attached = map[string][]Attachment{}
		}
		handle, ok := p.handles[o.Spec.Source.PersistentVolumeName]
		if !ok { // the PV was deleted, or the two lists were taken at different times
			continue
		}
		p.known.Attached[handle] = append(p.known.Attached[handle], Attachment{Node: o.Spec.NodeName, Done: o.Status.Attached && o.Metadata.DeletionTimestamp == ""})
	}
}

func (p *parser) lines(text []byte) error {
	s := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := request.ParseVolumeID(line); err != nil {
			return fmt.Errorf("the list of volumes, line %d: %w", n, err)
		}
		p.known.Volumes[line] = PV{}
	}
	return s.Err()
}

// names reports whether the list contains a volume, by its id or only its UUID.
func (k *Known) names(id request.VolumeID) bool {
	_, full := k.Volumes[id.String()]
	_, bare := k.Volumes[id.UUID]
	return full || bare
}
