package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// A Claim is a PersistentVolumeClaim that is bound to one of the driver's volumes.
type Claim struct {
	Namespace, Name, UID string
	Volume               string // volume handle of the PersistentVolume
	Store                string // lvstore in which the volume was created; empty if unknown
}

const volumesPath = "/api/v1/persistentvolumes"

// Claims lists the claims that are bound to a driver's volumes. It omits volumes that are being
// deleted.
func (c *Client) Claims(ctx context.Context, driver string) (claims []Claim, err error) {
	type persistentVolume struct {
		Metadata struct{ DeletionTimestamp string }
		Spec     struct {
			CSI struct {
				Driver, VolumeHandle string
				VolumeAttributes     map[string]string
			}
			ClaimRef struct{ Namespace, Name, UID string }
		}
		Status struct{ Phase string }
	}
	err = each(ctx, c, volumesPath, func(v persistentVolume) {
		ref := v.Spec.ClaimRef
		if v.Spec.CSI.Driver == driver && v.Status.Phase == "Bound" && v.Metadata.DeletionTimestamp == "" && ref.Namespace != "" && ref.Name != "" {
			claims = append(claims, Claim{
				Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
				Volume: v.Spec.CSI.VolumeHandle, Store: v.Spec.CSI.VolumeAttributes["lvstore"],
			})
		}
	})
	return claims, err
}

// An Event is a message about a claim, which users see with `kubectl describe pvc`.
type Event struct {
	Name    string // unique in the claim's namespace
	Claim   Claim
	Warning bool   // false: type Normal
	Reason  string // in CamelCase, for machines
	Message string
	// Component and Instance name the driver and the process that write the Event.
	Component, Instance string
	Time                time.Time
}

// CreateEvent creates an Event. It fails with [ErrChanged] if an Event with this name exists.
func (c *Client) CreateEvent(ctx context.Context, e Event) error {
	kind, at := "Normal", e.Time.UTC().Format(time.RFC3339)
	if e.Warning {
		kind = "Warning"
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"name": e.Name, "namespace": e.Claim.Namespace},
		"involvedObject": map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"namespace": e.Claim.Namespace, "name": e.Claim.Name, "uid": e.Claim.UID,
		},
		"type": kind, "reason": e.Reason, "message": e.Message,
		"source":             map[string]any{"component": e.Component},
		"reportingComponent": e.Component, "reportingInstance": e.Instance,
		"firstTimestamp": at, "lastTimestamp": at, "count": 1,
	})
	if err != nil {
		return err
	}
	_, err = c.Send(ctx, http.MethodPost, "/api/v1/namespaces/"+url.PathEscape(e.Claim.Namespace)+"/events", text)
	return err
}
