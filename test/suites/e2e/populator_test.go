//go:build kubernetes

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spdkgate/spdkgate/test/suites/e2e/artifacts"
)

var populator = flag.String("populator", "", "directory with the programs hello-populator and volume-data-source-validator, without which -upstream leaves out the test of any volume data source")

// addPopulator adds the images of a volume populator, which one of Kubernetes' own tests deploys.
// The tests do not build these images, because their modules are not available from the module
// proxy.
func (b *built) addPopulator(ctx context.Context, kubernetes string) error {
	module, err := artifacts.ModuleDir(ctx, kubernetes, "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	manifests := filepath.Join(module, "test/e2e/testing-manifests/storage-csi/any-volume-datasource")
	images, err := manifestImages(manifests, filepath.Join(manifests, "volume-data-source-validator"))
	if err != nil {
		return err
	}
	for name, references := range images {
		_, tag, _ := strings.Cut(references[0], ":")
		program := filepath.Join(*populator, name)
		if info, err := os.Stat(program); err != nil || !info.Mode().IsRegular() || !filepath.IsAbs(program) {
			return fmt.Errorf("-populator=%s: there is no program %s: build it without cgo from github.com/kubernetes-csi (hello-populator is in lib-volume-populator) at %s, and give the absolute path of the directory", *populator, name, tag)
		}
		b.Programs[name], b.Upstream[name] = program, references
	}
	return nil
}
