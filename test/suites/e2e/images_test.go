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

	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
	"github.com/spdkgate/spdkgate/test/suites/e2e/image"
)

// notWritten lists images in the manifests that deploy/image writes, or that no pod in the tests
// uses.
var notWritten = []string{"spdk-csi", "csi-node-driver-registrar"}

// writeImages writes an archive for each third-party image in the manifests, under the image's name
// there, so that the manifests can be used unchanged. It returns the archives of all images.
func writeImages(dir string, b built) ([]string, error) {
	names, err := manifestImages(
		filepath.Join(repository, "deploy/kubernetes"), filepath.Join(repository, "deploy/kubernetes/examples"), filepath.Join(repository, metadataComponent), snapshotControllerFolder(b))
	if err != nil {
		return nil, err
	}
	for _, n := range notWritten {
		delete(names, n)
	}
	names[backupTool] = []string{backupImage}
	if *upstream {
		names[installTool] = []string{installImage}
	}
	for name, references := range b.Upstream {
		names[name] = append(names[name], references...)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	archives := slices.Clone(b.Images)
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
	case backupTool: // for TestChangedBlocksSufficeForBackups
		program, err1 := b.program(name)
		i, err2 := workload(b)
		i.Names = references
		i.Contents = append(i.Contents, image.File(program, "/bin/snapshot-metadata-lister", 0o755), image.Link("/bin/snapshot-metadata-verifier", "snapshot-metadata-lister"))
		return i, errors.Join(err1, err2)
	case installTool: // for Kubernetes' own tests, which install a program with this image
		program, err1 := b.program(backupTool)
		i, err2 := workload(b)
		i.Names = references
		i.Contents = append(i.Contents, image.File("snapshotmetadata/go.sh", "/bin/go", 0o755), image.File(program, "/go/bin/snapshot-metadata-verifier", 0o755))
		return i, errors.Join(err1, err2)
	// for Kubernetes' own tests, which run shell scripts with GNU's tools in these images
	case "glibc-dns-testing", "nginx":
		return image.Image{Names: references, Cmd: []string{"/usr/bin/sleep", "2147483647"}, Env: []string{searchPath}, Contents: []image.Content{
			image.Tree(b.Shell), image.Text("/etc/passwd", passwd), image.Folder("/tmp", 0o1777),
		}}, nil
	case "hello-populator", "volume-data-source-validator": // for Kubernetes' own tests, as root
		program, err := b.program(name)
		return image.Image{Names: references, Entrypoint: []string{"/" + name}, Contents: []image.Content{image.File(program, "/"+name, 0o755)}}, err
	case "agnhost": // for Kubernetes' own tests, which run shell scripts in it
		program, err1 := b.program(name)
		i, err2 := workload(b)
		i.Names, i.Entrypoint, i.Cmd = references, []string{"/agnhost"}, []string{"pause"}
		i.Contents = append(i.Contents, image.File(program, "/agnhost", 0o755))
		return i, errors.Join(err1, err2)
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

// workload returns the image of the tests' pods. It also serves as the pause image, which holds the
// namespaces of all pods.
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
