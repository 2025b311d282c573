package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	namespace  = "spdkcsi"
	driverName = "csi.spdk.io"
)

// An object is one document in a manifest.
type object struct {
	file string
	runtime.Object
	meta metav1.Object
}

func (o object) kind() string { return o.GetObjectKind().GroupVersionKind().Kind }

func (o object) String() string { return o.file + ": " + o.kind() + " " + o.meta.GetName() }

var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme, snapshotv1.AddToScheme, groupsnapshotv1.AddToScheme, addSnapshotMetadata, addDefinitions,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
}()

// decode decodes manifests. Unknown kinds, unknown fields and duplicate fields are errors.
func decode(file string, source []byte) ([]object, error) {
	var objects []object
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(source))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(doc, &content); err == nil && content == nil {
			continue // comments only
		}
		o, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			return nil, err
		}
		meta, ok := o.(metav1.Object)
		if !ok {
			return nil, errors.New("not a single object")
		}
		objects = append(objects, object{file: file, Object: o, meta: meta})
	}
}

// manifests returns the objects in a directory.
func manifests(t *testing.T, folder string) []object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	var objects []object
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		found, err := decode(file, source)
		require.NoError(t, err, file)
		require.NotEmpty(t, found, file)
		objects = append(objects, found...)
	}
	require.NotEmpty(t, objects, folder)
	return objects
}

func plain(t *testing.T) []object    { return manifests(t, "kubernetes") }
func examples(t *testing.T) []object { return manifests(t, "kubernetes/examples") }

// find returns the object with the given type and name.
func find[T runtime.Object](t *testing.T, objects []object, name string) T {
	t.Helper()
	var none T
	for _, o := range objects {
		if v, ok := o.Object.(T); ok && o.meta.GetName() == name {
			return v
		}
	}
	require.FailNow(t, "missing object", "%v %s", reflect.TypeOf(none), name)
	return none
}

func TestUnknownFieldsAreRejected(t *testing.T) {
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n  a: b\n"
	objects, err := decode("good", []byte("# comment\n---\n"+good+"---\n"+good))
	require.NoError(t, err)
	assert.Len(t, objects, 2)
	for name, bad := range map[string]string{
		"unknown field":   good + "dat: {}\n",
		"duplicate field": good + "data:\n  a: c\n",
		"other case":      strings.Replace(good, "data:", "Data:", 1),
		"unknown kind":    strings.Replace(good, "ConfigMap", "ConfigMop", 1),
		"unknown version": strings.Replace(good, "v1", "v2", 1),
		"wrong type":      strings.Replace(good, "a: b", "a: [b]", 1),
	} {
		_, err := decode(name, []byte(bad))
		assert.Error(t, err, name)
	}
}

// All objects are either in the driver's namespace or cluster-scoped.
func TestObjectsAreInTheDriversNamespace(t *testing.T) {
	clusterWide := []string{"Namespace", "CSIDriver", "StorageClass", "VolumeSnapshotClass", "ClusterRole", "ClusterRoleBinding"}
	seen := map[string]bool{}
	for _, o := range plain(t) {
		key := o.kind() + "/" + o.meta.GetName()
		assert.False(t, seen[key], "%s occurs twice", key)
		seen[key] = true
		want := namespace
		for _, kind := range clusterWide {
			if o.kind() == kind {
				want = ""
			}
		}
		assert.Equal(t, want, o.meta.GetNamespace(), "%v", o)
	}
	assert.Equal(t, namespace, find[*corev1.Namespace](t, plain(t), namespace).Name)
	for _, o := range examples(t) {
		assert.Empty(t, o.meta.GetNamespace(), "%v: an example must use the user's namespace", o)
	}
}

// The kustomization lists every manifest, and all listed files exist.
func TestKustomizationListsEveryManifest(t *testing.T) {
	source, err := os.ReadFile("kubernetes/kustomization.yaml")
	require.NoError(t, err)
	var k struct {
		APIVersion, Kind      string
		Resources, Components []string
		Images                []struct{ Name, NewTag string }
	}
	require.NoError(t, yaml.UnmarshalStrict(source, &k))
	assert.Equal(t, "kustomize.config.k8s.io/v1beta1 Kustomization", k.APIVersion+" "+k.Kind)

	files, err := filepath.Glob("kubernetes/*.yaml")
	require.NoError(t, err)
	var want []string
	for _, f := range files {
		if name := filepath.Base(f); name != "kustomization.yaml" {
			want = append(want, name)
		}
	}
	assert.ElementsMatch(t, want, k.Resources)
	assert.Empty(t, k.Components, "options are off")

	for _, i := range k.Images {
		used := false
		for _, w := range workloads(t) {
			for _, c := range w.pod.Containers {
				used = used || c.Image == i.Name+":"+i.NewTag
			}
		}
		assert.True(t, used, "no container has the image %s:%s", i.Name, i.NewTag)
	}
}
