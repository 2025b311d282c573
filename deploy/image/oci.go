package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// The types of the OCI image specification v1.1, with the members that these images have.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int64             `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Platform    *platform         `json:"platform,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	manifest struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Config        descriptor        `json:"config"`
		Layers        []descriptor      `json:"layers"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
	index struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Manifests     []descriptor      `json:"manifests"`
		Annotations   map[string]string `json:"annotations,omitempty"`
	}
	imageConfig struct {
		Created      time.Time     `json:"created"`
		Architecture string        `json:"architecture"`
		OS           string        `json:"os"`
		Config       processConfig `json:"config"`
		RootFS       rootFS        `json:"rootfs"`
		History      []history     `json:"history"`
	}
	processConfig struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd,omitempty"`
		Labels       map[string]string   `json:"Labels"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	history struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}
)

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// A layout is an OCI image layout: blobs by digest.
type layout struct{ blobs map[string][]byte }

func (l *layout) add(mediaType string, blob []byte) descriptor {
	if l.blobs == nil {
		l.blobs = map[string][]byte{}
	}
	sum := digest(blob)
	l.blobs[sum] = blob
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: int64(len(blob))}
}

func (l *layout) addJSON(mediaType string, v any) (descriptor, error) {
	blob, err := json.Marshal(v)
	return l.add(mediaType, blob), err
}

func labels(r recipe, o options) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       r.program,
		"org.opencontainers.image.description": r.description,
		"org.opencontainers.image.source":      "https://github.com/spdkgate/spdkgate",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     o.version,
		"org.opencontainers.image.revision":    o.revision,
		"org.opencontainers.image.created":     o.created.Format(time.RFC3339),
	}
}

// addImage adds the image of one architecture.
func (l *layout) addImage(r recipe, arch string, o options, layers ...tree) (descriptor, error) {
	config := imageConfig{
		Created: o.created, Architecture: arch, OS: "linux", RootFS: rootFS{Type: "layers"},
		Config: processConfig{
			User: "65532:65532", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: []string{"/usr/local/bin/" + r.program}, Cmd: r.cmd, Labels: labels(r, o),
		},
	}
	for _, port := range r.ports {
		config.Config.ExposedPorts = map[string]struct{}{port: {}}
	}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, Annotations: labels(r, o)}
	for i, t := range layers {
		archive, err := t.archive(o.created)
		if err != nil {
			return descriptor{}, err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, "sha256:"+digest(archive))
		config.History = append(config.History, history{o.created, []string{"Debian's packages in " + lockFile, r.program}[i]})
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(archive); err != nil {
			return descriptor{}, err
		}
		if err := w.Close(); err != nil {
			return descriptor{}, err
		}
		m.Layers = append(m.Layers, l.add(typeLayer, packed.Bytes()))
	}
	var err error
	if m.Config, err = l.addJSON(typeConfig, config); err != nil {
		return descriptor{}, err
	}
	d, err := l.addJSON(typeManifest, m)
	d.Platform = &platform{Architecture: arch, OS: "linux"}
	return d, err
}

// write writes the layout as an archive, which skopeo and buildah read as oci-archive, and returns the digest of the index that
// names the manifests.
func (l *layout) write(path string, manifests []descriptor, name string, created time.Time) (string, error) {
	all, err := l.addJSON(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: manifests})
	if err != nil {
		return "", err
	}
	// The first is for skopeo and buildah, the second for containerd.
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
	top, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{all}})
	if err != nil {
		return "", err
	}
	t := tree{
		"oci-layout": text(`{"imageLayoutVersion":"1.0.0"}`),
		"index.json": text(string(top)),
	}
	for _, sum := range slices.Sorted(maps.Keys(l.blobs)) {
		t["blobs/sha256/"+sum] = entry{kind: tar.TypeReg, mode: 0o644, data: l.blobs[sum]}
	}
	archive, err := t.archive(created)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, archive, 0o644); err != nil {
		return "", fmt.Errorf("write the image: %w", err)
	}
	return all.Digest, nil
}
