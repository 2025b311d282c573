package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/test/e2e/framework"
	e2epod "k8s.io/kubernetes/test/e2e/framework/pod"
	e2evolume "k8s.io/kubernetes/test/e2e/framework/volume"
	storageframework "k8s.io/kubernetes/test/e2e/storage/framework"
	"k8s.io/kubernetes/test/e2e/storage/testsuites"
	"k8s.io/kubernetes/test/e2e/storage/utils"
)

// A metadataDriver is the driver for Kubernetes' tests of SnapshotMetadata. The definition of
// external drivers cannot be used, because it lacks the driver's namespace, without which these
// tests crash.
type metadataDriver struct{}

const (
	driverName      = "csi.spdk.io"
	driverNamespace = "spdkcsi"
	storageClass    = "spdkcsi-sc"
	snapshotClass   = "spdkcsi-snapclass"
)

var _ interface {
	storageframework.DynamicPVTestDriver
	storageframework.SnapshottableTestDriver
	storageframework.SnapshotMetadataTestDriver
} = metadataDriver{}

func defineMetadataTests() {
	framework.Describe("Snapshot metadata of "+driverName, func() {
		storageframework.DefineTestSuites(metadataDriver{}, []func() storageframework.TestSuite{testsuites.InitSnapshotMetadataTestSuite})
	})
}

func (metadataDriver) GetDriverInfo() *storageframework.DriverInfo {
	return &storageframework.DriverInfo{
		Name: driverName, SupportedFsType: sets.NewString(""), SupportedSizeRange: e2evolume.SizeRange{Min: "64Mi"},
		Capabilities: map[storageframework.Capability]bool{
			storageframework.CapBlock: true, storageframework.CapSnapshotDataSource: true, storageframework.CapSnapshotMetadata: true,
		},
	}
}

func (metadataDriver) SkipUnsupportedTest(storageframework.TestPattern) {}

func (d metadataDriver) PrepareTest(_ context.Context, f *framework.Framework) *storageframework.PerTestConfig {
	return &storageframework.PerTestConfig{
		Driver: d, Prefix: "metadata", Framework: f, ClientNodeSelection: e2epod.NodeSelection{Selector: map[string]string{"kubernetes.io/os": "linux"}},
		DriverNamespace: &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: driverNamespace}},
	}
}

func (metadataDriver) GetDynamicProvisionStorageClass(ctx context.Context, c *storageframework.PerTestConfig, _ string) *storagev1.StorageClass {
	class, err := c.Framework.ClientSet.StorageV1().StorageClasses().Get(ctx, storageClass, metav1.GetOptions{})
	framework.ExpectNoError(err)
	return storageframework.CopyStorageClass(class, c.Framework.Namespace.Name, "sc")
}

func (metadataDriver) GetSnapshotClass(ctx context.Context, c *storageframework.PerTestConfig, parameters map[string]string) *unstructured.Unstructured {
	class, err := c.Framework.DynamicClient.Resource(utils.SnapshotClassGVR).Get(ctx, snapshotClass, metav1.GetOptions{})
	framework.ExpectNoError(err)
	given, _, err := unstructured.NestedStringMap(class.Object, "parameters")
	framework.ExpectNoError(err)
	for k, v := range given {
		parameters[k] = v
	}
	return utils.GenerateSnapshotClassSpec(driverName, parameters, c.Framework.Namespace.Name)
}
