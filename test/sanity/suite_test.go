package sanity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	csisanity "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
)

const (
	reportEnv  = "SPDKGATE_SANITY_REPORT"
	targetName = "sanity"
	nodeName   = "node-1"
	mib        = 1 << 20
)

// runSuite runs the suite on one variant, and returns this process's exit code.
func runSuite(v variant) int {
	if err := suite(v); err != nil {
		fmt.Fprintln(os.Stderr, "sanity:", err)
		return 1
	}
	return 0
}

func suite(v variant) (err error) {
	dir, err := os.MkdirTemp("", "sanity-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, stop := context.WithCancel(context.Background())
	var services errgroup.Group
	defer func() { stop(); err = errors.Join(err, services.Wait()) }()

	world, err := newWorld(ctx, v, dir, &services)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.close()) }()
	before, err := world.state(ctx)
	if err != nil {
		return err
	}
	if !run(v, world, dir) {
		return errors.New("the suite failed")
	}
	if err := world.mounted(); err != nil {
		return err
	}
	after, err := world.state(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("the suite left something behind: before %s, after %s", before, after)
	}
	return err
}

// verdict is a testing.T of Ginkgo's kind.
type verdict struct{ failed bool }

func (v *verdict) Fail() { v.failed = true }

func run(v variant, w *world, dir string) bool {
	c := csisanity.NewTestConfig()
	c.Address = "unix://" + w.socket
	c.TargetPath = filepath.Join(dir, "target")
	c.StagingPath = filepath.Join(dir, "staging")
	c.SecretsFile = w.secretsFile
	c.TestVolumeSize = v.SizeMiB * mib
	c.TestVolumeExpandSize = 2 * v.SizeMiB * mib
	c.TestVolumeAccessType = v.AccessType
	c.TestVolumeParameters = map[string]string{}
	if v.FSType != "" {
		c.TestVolumeParameters["fsType"] = v.FSType
	}
	if w.clear != "" {
		c.TestVolumeParameters["clearMethod"] = w.clear
	}
	c.IDGen = ids{}

	var specs []spec
	ginkgo.ReportAfterEach(func(r ginkgo.SpecReport) {
		specs = append(specs, spec{Text: r.FullText(), State: r.State.String(), Failure: r.Failure.Message, Took: r.RunTime})
	})
	var t verdict
	sc := csisanity.GinkgoTest(&c)
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(&t, "CSI driver: "+v.Name)
	sc.Finalize()
	text, err := json.Marshal(specs)
	if err == nil {
		err = os.WriteFile(os.Getenv(reportEnv), text, 0o600)
	}
	return err == nil && !t.failed
}

// ids makes ids as this driver has them. The suite's own volume ids are refused for their form before anybody asks a
// target; and since the driver takes every name for a node's, those of nodes that do not exist must not look like one.
type ids struct{}

func (ids) GenerateUniqueValidVolumeID() string { return targetName + ":" + uuid.NewString() }
func (ids) GenerateInvalidVolumeID() string     { return "not a volume id" }
func (ids) GenerateUniqueValidNodeID() string   { return "no node: " + uuid.NewString() }
func (ids) GenerateInvalidNodeID() string       { return "no node" }

// writeSecrets writes the secrets of all calls in the suite's format.
func writeSecrets(path, secret string) error {
	m := map[string]map[string]string{}
	for _, call := range []string{
		"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "ControllerValidateVolumeCapabilities",
		"CreateSnapshot", "DeleteSnapshot", "ControllerExpandVolume", "ListSnapshots", "GetSnapshot",
	} {
		m[call+"Secret"] = map[string]string{"secret.json": secret}
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// freeAddress finds a port; between this and its use somebody else may take it, which shows.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
