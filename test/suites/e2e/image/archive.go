package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// An Image describes a container image.
type Image struct {
	Names      []string // references with tags, such as registry.example/name:v1
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string
	Contents   []Content // in order; a later one may replace files in an earlier one
}

// Write writes the image's archive to a file.
func Write(path string, i Image) (err error) {
	layer, err := os.CreateTemp(filepath.Dir(path), ".layer-")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	digest, err := writeLayer(layer, i.Contents)
	if err != nil {
		return fmt.Errorf("write the layer of %v: %w", i.Names, err)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return writeArchive(file, layer, digest, i)
}

// writeLayer writes the tar archive of the contents and returns its digest.
func writeLayer(file io.Writer, contents []Content) (string, error) {
	sum := sha256.New()
	l := &layer{tar: tar.NewWriter(io.MultiWriter(file, sum)), folders: map[string]bool{}}
	for _, c := range contents {
		if err := c(l); err != nil {
			return "", err
		}
	}
	if err := l.tar.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func writeArchive(w io.Writer, layer *os.File, digest string, i Image) error {
	const layerName, configName = "layer.tar", "config.json"
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": i.Entrypoint, "Cmd": i.Cmd, "Env": i.Env, "User": i.User},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
		"history":      []any{map[string]any{"created": "1970-01-01T00:00:00Z"}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": i.Names, "Layers": []string{layerName}}})
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		text []byte
	}{{"manifest.json", manifest}, {configName, config}} {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	size, err := layer.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Name: layerName, Mode: 0o644, Size: size}); err != nil {
		return err
	}
	if _, err := io.Copy(t, layer); err != nil {
		return err
	}
	return t.Close()
}
