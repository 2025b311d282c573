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

// runSuite runs the suite on one variant and returns the exit code for this process.
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

	environment, err := newEnvironment(ctx, v, dir, &services)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, environment.close()) }()
	before, err := environment.state(ctx)
	if err != nil {
		return err
	}
	if !run(v, environment, dir) {
		return errors.New("the suite failed")
	}
	if err := environment.checkMounts(); err != nil {
		return err
	}
	after, err := environment.state(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("the target's state changed: before the suite %s, after it %s", before, after)
	}
	return err
}

// suiteResult implements ginkgo.GinkgoTestingT.
type suiteResult struct{ failed bool }

func (r *suiteResult) Fail() { r.failed = true }

func run(v variant, w *environment, dir string) bool {
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
	var t suiteResult
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

// ids generates ids in this driver's format. The driver rejects the suite's default volume ids
// because of their format, before it calls a target. It accepts every valid name as a node id, so
// ids for missing nodes must not be valid names.
type ids struct{}

func (ids) GenerateUniqueValidVolumeID() string { return targetName + ":" + uuid.NewString() }
func (ids) GenerateInvalidVolumeID() string     { return "not a volume id" }
func (ids) GenerateUniqueValidNodeID() string   { return "no node: " + uuid.NewString() }
func (ids) GenerateInvalidNodeID() string       { return "no node" }

// writeSecrets writes the secrets for all calls in the suite's format.
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

// freeAddress finds a free port. If another process takes the port before it is used, listening
// fails.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
