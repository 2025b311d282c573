//go:build kubernetes

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/test/suites/e2e/artifacts"
	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
)

const (
	buildFile     = "built.json" // in the state directory
	storageFolder = "storage"    // in the state directory
)

// built is the data that the outer process passes to the inner one.
type built struct {
	Begin    time.Time
	Programs artifacts.Programs
	Node     string              // directory with the node's packages
	Shell    string              // directory with the packages for images that run shell scripts; empty without -upstream
	Workload string              // directory with the packages for the workload's image
	Modules  map[string]string   // source directories, by module
	Images   []string            // image archives of spdk-csi and spdk-proxy
	Upstream map[string][]string // images for Kubernetes' own tests, by name; empty without -upstream
}

const snapshotter = "github.com/kubernetes-csi/external-snapshotter/"

// The tests apply manifests from these modules.
const (
	snapshotCRDs       = snapshotter + "client/v8"
	snapshotController = snapshotter + "v8"
	metadataCRD        = "github.com/kubernetes-csi/external-snapshot-metadata/client"
)

func buildAll(ctx context.Context, store *artifacts.Store) (b built, err error) {
	b = built{Begin: begin, Modules: map[string]string{}}
	if *populator != "" && !*upstream {
		return b, errors.New("-populator adds a test to -upstream: give both")
	}
	policyPackages, err := policyPackages()
	if err != nil {
		return b, err
	}
	kubernetes, err := filepath.Abs("kubernetes")
	if err != nil {
		return b, err
	}
	if b.Programs, err = store.Tools(ctx, kubernetes, *parallel); err != nil {
		return b, err
	}
	progress("Kubernetes and the sidecars are built: %d programs", len(b.Programs))
	helm, err := store.Tools(ctx, filepath.Join(repository, "deploy/helm"), *parallel)
	if err != nil {
		return b, err
	}
	maps.Copy(b.Programs, helm)
	metadata, err := filepath.Abs("snapshotmetadata")
	if err != nil {
		return b, err
	}
	sidecar, err := store.Tools(ctx, metadata, *parallel)
	if err != nil {
		return b, err
	}
	maps.Copy(b.Programs, sidecar)
	tool, err := store.Own(ctx, metadata, "", "./"+backupTool)
	if err != nil {
		return b, err
	}
	maps.Copy(b.Programs, tool)
	if *upstream {
		suite, err := store.Own(ctx, kubernetes, "", "./storagesuite", "k8s.io/kubernetes/test/images/agnhost")
		if err != nil {
			return b, err
		}
		maps.Copy(b.Programs, suite)
		if b.Upstream, err = upstreamImages(ctx, suite["storagesuite"]); err != nil {
			return b, err
		}
		if *populator != "" {
			if err := b.addPopulator(ctx, kubernetes); err != nil {
				return b, err
			}
		}
		progress("Kubernetes' own tests are built")
	}
	own, err := store.Own(ctx, repository, "e2e", "./cmd/spdk-proxy", "./cmd/kubectl-spdkgate", "./test/suites/e2e/livenessprobe")
	if err != nil {
		return b, err
	}
	maps.Copy(b.Programs, own)
	for _, i := range [][2]string{{"spdk-csi", driverVersion}, {"spdk-csi", otherVersion}, {"spdk-proxy", driverVersion}} {
		archive, err := store.Image(ctx, repository, i[0], i[1])
		if err != nil {
			return b, err
		}
		b.Images = append(b.Images, archive)
	}
	progress("the images of spdk-csi and spdk-proxy are built")
	for _, m := range []string{snapshotCRDs, snapshotController} {
		if b.Modules[m], err = artifacts.ModuleDir(ctx, kubernetes, m); err != nil {
			return b, err
		}
	}
	if b.Modules[metadataCRD], err = artifacts.ModuleDir(ctx, metadata, metadataCRD); err != nil {
		return b, err
	}
	folders := map[*string][]string{&b.Node: slices.Concat(cluster.Packages, policyPackages), &b.Workload: {"busybox-static"}}
	if *upstream {
		folders[&b.Shell] = []string{"base-files", "coreutils", "dash", "grep", "sed", "util-linux"}
	}
	for folder, packages := range folders {
		if *folder, err = store.Packages(ctx, packages...); err != nil {
			return b, err
		}
	}
	progress("the Debian packages are unpacked")
	return b, nil
}

func (b built) write(path string) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func readBuilt(path string) (b built, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return b, err
	}
	return b, json.Unmarshal(text, &b)
}

// program returns the path of the program that an image runs, by the image's name.
func (b built) program(image string) (string, error) {
	name := imageName(image)
	if p, there := b.Programs[name]; there {
		return p, nil
	}
	return "", fmt.Errorf("no program for image %s; there are %v", image, slices.Sorted(maps.Keys(b.Programs)))
}
