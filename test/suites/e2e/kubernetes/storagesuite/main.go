// Storagesuite runs Kubernetes' own tests of external storage drivers
// (k8s.io/kubernetes/test/e2e/storage/external) and of SnapshotMetadata alone, without the rest of
// Kubernetes' tests. Its flags are the same as those of e2e.test.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	_ "k8s.io/kubernetes/test/e2e/storage/external" // flag -storage.testdriver
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

type suite struct{ failed bool }

func (s *suite) Fail() { s.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	defineMetadataTests()
	gomega.RegisterFailHandler(framework.Fail)
	s := &suite{}
	suiteConfig, reporterConfig := framework.CreateGinkgoConfig()
	if !ginkgo.RunSpecs(s, "Kubernetes' external storage suite", suiteConfig, reporterConfig) || s.failed {
		os.Exit(1)
	}
}
