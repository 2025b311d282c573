package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

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

// newImage returns the image for one architecture.
func newImage(r recipe, arch string, o options, packages, program tree) (v1.Image, error) {
	config := v1.Config{
		User: "65532:65532", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: []string{"/usr/local/bin/" + r.program}, Cmd: r.cmd, Labels: labels(r, o),
	}
	for _, port := range r.ports {
		config.ExposedPorts = map[string]struct{}{port: {}}
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		Created: v1.Time{Time: o.created}, Architecture: arch, OS: "linux", RootFS: v1.RootFS{Type: "layers"}, Config: config,
	})
	if err != nil {
		return nil, err
	}
	bottom, err := packages.layer("Debian's packages in "+lockFile, o.created)
	if err != nil {
		return nil, err
	}
	top, err := program.layer(r.program, o.created)
	if err != nil {
		return nil, err
	}
	if image, err = mutate.Append(image, bottom, top); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, labels(r, o)).(v1.Image), nil
}

// layer returns a tree as a layer, with its entry in the image's history.
func (t tree) layer(createdBy string, created time.Time) (mutate.Addendum, error) {
	archive, err := t.archive(created)
	if err != nil {
		return mutate.Addendum{}, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	return mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: createdBy}}, err
}

// writeImages writes the images for all architectures as an archive, which skopeo and buildah read
// as oci-archive. It returns the digest of the index that lists them.
func writeImages(path string, images []v1.Image, name string, created time.Time) (string, error) {
	var all []mutate.IndexAddendum
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return "", err
		}
		all = append(all, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	index := mutate.AppendManifests(empty.Index, all...)
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", fmt.Errorf("write the image: %w", err)
	}
	// skopeo and buildah read the first annotation; containerd reads the second.
	names := map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
	if err := l.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return "", fmt.Errorf("write the image: %w", err)
	}
	t, err := readTree(os.DirFS(dir))
	if err != nil {
		return "", err
	}
	archive, err := t.archive(created)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, archive, 0o644); err != nil {
		return "", fmt.Errorf("write the image: %w", err)
	}
	digest, err := index.Digest()
	return digest.String(), err
}

// readTree reads the files in a directory, without their times and owners.
func readTree(dir fs.FS) (tree, error) {
	t := tree{}
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, name)
		t[name] = entry{kind: tar.TypeReg, mode: 0o644, data: data}
		return err
	})
	return t, err
}
