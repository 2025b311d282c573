//go:build kubernetes

package e2e

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/test/e2e/cluster"
	"github.com/spdkgate/spdkgate/test/e2e/image"
)

// otherTag is a second tag of the driver's image, for an upgrade.
const otherTag = "other"

// unused are images of the manifests that no pod of the tests runs.
var unused = []string{"csi-node-driver-registrar"}

// writeImages writes an archive for each image that the manifests name, under the name that it has there, so that
// manifests need no changes.
func writeImages(dir string, b built) ([]string, error) {
	names, err := manifestImages(
		filepath.Join(repository, "deploy/kubernetes"), filepath.Join(repository, "deploy/kubernetes/examples"), snapshotControllerFolder(b))
	if err != nil {
		return nil, err
	}
	for _, n := range unused {
		delete(names, n)
	}
	for name, references := range b.Upstream {
		names[name] = append(names[name], references...)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var archives []string
	var g errgroup.Group
	for _, name := range slices.Sorted(maps.Keys(names)) {
		i, err := imageOf(name, names[name], b)
		if err != nil {
			return nil, err
		}
		archive := filepath.Join(dir, name+".tar")
		archives = append(archives, archive)
		g.Go(func() error { return image.Write(archive, i) })
	}
	return archives, g.Wait()
}

func imageOf(name string, references []string, b built) (image.Image, error) {
	switch name {
	case "busybox":
		i, err := workload(b)
		i.Names = append(references, cluster.PauseImage)
		return i, err
	case "glibc-dns-testing", "nginx": // of Kubernetes' own tests, which run shell scripts with GNU's tools in them
		return image.Image{Names: references, Cmd: []string{"/usr/bin/sleep", "2147483647"}, Env: []string{searchPath}, Contents: []image.Content{
			image.Tree(b.Driver), image.Text("/etc/passwd", passwd), image.Folder("/tmp", 0o1777),
		}}, nil
	case "agnhost": // of Kubernetes' own tests, which run shell scripts in it
		program, err1 := b.program(name)
		i, err2 := workload(b)
		i.Names, i.Entrypoint, i.Cmd = references, []string{"/agnhost"}, []string{"pause"}
		i.Contents = append(i.Contents, image.File(program, "/agnhost", 0o755))
		return i, errors.Join(err1, err2)
	case "spdk-csi":
		program, err := b.program(name)
		untagged, _, _ := strings.Cut(references[0], ":")
		i := image.Image{Names: append(references, untagged+":"+otherTag), Entrypoint: b.Container.Entrypoint, User: b.Container.User, Env: []string{searchPath}, Contents: []image.Content{
			image.Tree(b.Driver), image.Text("/etc/passwd", passwd), image.Folder("/tmp", 0o1777),
			image.File(program, b.Container.Entrypoint[0], 0o755),
		}}
		for _, f := range b.Container.Files {
			i.Contents = append(i.Contents, image.File(filepath.Join(repository, f[0]), f[1], 0o755))
		}
		return i, err
	}
	program, err := b.program(name)
	return image.Image{Names: references, Entrypoint: []string{"/" + name}, User: "65532:65532", Contents: []image.Content{
		image.File(program, "/"+name, 0o755), image.Folder("/tmp", 0o1777),
	}}, err
}

const (
	searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	passwd     = "root:x:0:0:root:/root:/bin/sh\n"
)

// workload is the image of the tests' pods, and also keeps the namespaces of all pods.
func workload(b built) (image.Image, error) {
	busybox := filepath.Join(b.Workload, "bin/busybox")
	i := image.Image{Cmd: []string{"/bin/sleep", "2147483647"}, Env: []string{searchPath}, Contents: []image.Content{
		image.File(busybox, "/bin/busybox", 0o755), image.Text("/etc/passwd", passwd), image.Folder("/tmp", 0o1777),
	}}
	applets, err := exec.Command(busybox, "--list").Output()
	for a := range strings.FieldsSeq(string(applets)) {
		if a != "busybox" {
			i.Contents = append(i.Contents, image.Link("/bin/"+a, "busybox"))
		}
	}
	return i, err
}
