package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

// A collection contains the objects of one kind in the Kubernetes API.
type collection struct{ apiVersion, kind, path string }

var volumeObjects = collection{"v1", "PersistentVolume", volumesPath}

func claimObjects(namespace string) collection {
	return collection{"v1", "PersistentVolumeClaim", "/api/v1/namespaces/" + namespace + "/persistentvolumeclaims"}
}

func configMapObjects(namespace string) collection {
	return collection{"v1", "ConfigMap", "/api/v1/namespaces/" + namespace + "/configmaps"}
}

func jobObjects(namespace string) collection {
	return collection{"batch/v1", "Job", "/apis/batch/v1/namespaces/" + namespace + "/jobs"}
}

// An object is an object of the Kubernetes API with all its fields, including those that this
// program does not know. A nil object does not exist.
type object map[string]any

func parseObject(text []byte) (o object, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // keeps large numbers exact
	return o, d.Decode(&o)
}

// at returns the value of a nested field, or nil.
func (o object) at(path ...string) any {
	var value any = map[string]any(o)
	for _, key := range path {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	return value
}

// text returns the value of a nested field that contains a string.
func (o object) text(path ...string) string {
	text, _ := o.at(path...).(string)
	return text
}

// texts returns a nested object whose fields contain strings.
func (o object) texts(path ...string) map[string]string {
	fields, _ := o.at(path...).(map[string]any)
	texts := map[string]string{}
	for key, value := range fields {
		texts[key], _ = value.(string)
	}
	return texts
}

func (o object) name() string     { return o.text("metadata", "name") }
func (o object) uid() string      { return o.text("metadata", "uid") }
func (o object) terminated() bool { return o.text("metadata", "deletionTimestamp") != "" }

// set changes a field of a nested object, which must exist.
func (o object) set(value any, path ...string) {
	fields, _ := o.at(path[:len(path)-1]...).(map[string]any)
	fields[path[len(path)-1]] = value
}

// copied returns a deep copy of an object.
func (o object) copied() (object, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return parseObject(text)
}

// find returns an object, or nil if it does not exist. It lists the objects with this name, because
// the output of a failed kubectl get does not show reliably whether the object is absent.
func (c Client) find(ctx context.Context, r collection, name string) (object, error) {
	found, err := list[json.RawMessage](ctx, c, r.path, url.Values{"fieldSelector": {"metadata.name=" + name}})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	o, err := parseObject(found[0])
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.kind, name, err)
	}
	o["apiVersion"], o["kind"] = r.apiVersion, r.kind // which the items of a list lack
	return o, nil
}

// create creates an object, and returns it as stored. It fails if an object with this name exists.
func (c Client) create(ctx context.Context, r collection, o object) (object, error) {
	o["apiVersion"], o["kind"] = r.apiVersion, r.kind
	return c.write(ctx, "create", r.path, o)
}

// replace replaces an object, and returns it as stored. It fails if the object has changed since it
// was read.
func (c Client) replace(ctx context.Context, r collection, o object) (object, error) {
	return c.write(ctx, "replace", r.path+"/"+o.name(), o)
}

func (c Client) write(ctx context.Context, verb, path string, o object) (object, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	text, err := c.raw(ctx, verb, path, body)
	if err != nil {
		return nil, err
	}
	return parseObject(text)
}

// remove deletes an object. It fails if the object has been replaced by another one with the same
// name or, if unchanged is set, has changed since it was read. A Job exists until its pods are
// deleted.
func (c Client) remove(ctx context.Context, r collection, o object, unchanged bool) error {
	preconditions := map[string]string{"uid": o.uid()}
	if unchanged {
		preconditions["resourceVersion"] = o.text("metadata", "resourceVersion")
	}
	propagation := "Background"
	if r.kind == "Job" {
		propagation = "Foreground"
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation, "preconditions": preconditions})
	if err != nil {
		return err
	}
	_, err = c.raw(ctx, "delete", r.path+"/"+o.name(), body)
	return err
}
