//go:build kubernetes

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

var upstream = flag.Bool("upstream", false, "also run Kubernetes' own tests of storage drivers, which takes long (with -run TestUpstream: only these)")

// definition declares the driver's capabilities to Kubernetes' tests. An XFS volume needs 300 MiB.
// RWX would also include file systems, so TestReadWriteManyVolumeIsSharedByNodes tests it with raw
// block volumes instead.
const definition = `StorageClass: {FromExistingClassName: ` + storageClass + `}
SnapshotClass: {FromExistingClassName: spdkcsi-snapclass}
GroupSnapshotClass: {FromExistingClassName: spdkcsi-groupsnapclass}
VolumeAttributesClass: {FromExistingClassName: upstream}
DriverInfo:
  Name: ` + driverName + `
  SupportedSizeRange: {Min: 320Mi}
  SupportedFsType: {"": {}, ext4: {}, xfs: {}}
  SupportedMountOption: {noatime: {}}
  Capabilities:
    persistence: true
    block: true
    fsGroup: true
    exec: true
    snapshotDataSource: true
    groupSnapshot: true
    pvcDataSource: true
    multipods: true
    controllerExpansion: true
    nodeExpansion: true
    offlineExpansion: true
    onlineExpansion: %t
    readWriteOncePod: true
    multiplePVsSameID: true
    capReadOnlyMany: true
`

// A spec is a test in ginkgo's report.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText, State     string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// TestUpstream runs the tests of k8s.io/kubernetes/test/e2e/storage/external, several of them
// concurrently.
func TestUpstream(t *testing.T) {
	if !*upstream {
		t.Skip("only with ARGS=-upstream")
	}
	n := newNamespace(t, "Kubernetes' own tests of storage drivers")
	dir := t.TempDir()
	file := filepath.Join(dir, "driver.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, definition, canGrowMounted(n)), 0o600))
	n.apply(fmt.Sprintf(attributesClass, "upstream", 5000))
	t.Cleanup(func() { n.run("delete", "volumeattributesclass", "upstream") })
	s := suite{driver: file, dir: dir}

	all, err := s.run(t.Context(), "all", "--ginkgo.dry-run")
	require.NoError(t, err)
	var together, alone []string
	for _, spec := range all {
		switch name := spec.name(); {
		case spec.State != "passed" || !strings.HasPrefix(name, "External Storage") || !fits(name):
		case strings.Contains(name, "[Serial]"):
			alone = append(alone, name)
		default:
			together = append(together, name)
		}
	}
	require.NotEmpty(t, together)
	const processes = 8 // these tests spend most of their time waiting
	shards := slices.Collect(slices.Chunk(together, (len(together)+processes-1)/processes))
	reports := make([][]spec, len(shards)+1)
	var g errgroup.Group
	for i, names := range shards {
		g.Go(func() (err error) {
			reports[i], err = s.run(t.Context(), fmt.Sprint(i), focus(names))
			return err
		})
	}
	require.NoError(t, g.Wait())
	if len(alone) > 0 {
		reports[len(shards)], err = s.run(t.Context(), "alone", focus(alone))
		require.NoError(t, err)
	}
	n.countOutcomes(slices.Concat(reports...))
}

// unfit matches tests that this cluster cannot run, because they restart kubelet over SSH or need
// Windows.
var unfit = regexp.MustCompile(`\[Disruptive\]|ntfs|Windows`)

func fits(test string) bool {
	return !unfit.MatchString(test) && (*populator != "" || !strings.Contains(test, "any volume data source"))
}

// countOutcomes counts the outcomes, and reports an error for each test that failed.
func (n *namespace) countOutcomes(specs []spec) {
	n.t.Helper()
	counts, reasons := map[string]int{}, map[string]int{}
	for _, s := range specs {
		if s.State == "skipped" && s.Failure.Message == "" { // not selected by this process
			continue
		}
		counts[s.State]++
		switch s.State {
		case "passed":
			n.t.Logf("passed in %.0f s: %s", s.RunTime.Seconds(), s.name())
		case "skipped":
			reasons[s.Failure.Message]++
		default:
			assert.Fail(n.t, "a test of Kubernetes "+s.State, "%s: %s", s.name(), s.Failure.Message)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		n.t.Logf("skipped %d: %s", reasons[reason], reason)
	}
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		n.figure("%d %s", counts[state], state)
	}
	assert.NotZero(n.t, counts["passed"])
}

// A suite is the program of Kubernetes' tests.
type suite struct{ driver, dir string }

// run runs the program, and returns its report even if tests failed.
func (s suite) run(ctx context.Context, name string, args ...string) ([]spec, error) {
	report := filepath.Join(s.dir, name+".json")
	log, err := os.Create(filepath.Join(env.cluster.Logs(), "upstream-"+name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, env.suite, append([]string{
		"--kubeconfig=" + env.cluster.Kubeconfig(), "--kubectl-path=" + filepath.Join(env.driver.programs, "kubectl"), "--storage.testdriver=" + s.driver, "--provider=local",
		"--ginkgo.no-color", "--ginkgo.timeout=2h", "--ginkgo.json-report=" + report,
	}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	runErr := cmd.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("no report: %w; see %s", runErr, log.Name())
	}
	var reports []struct{ SpecReports []spec }
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, err
	}
	return reports[0].SpecReports, nil
}

func focus(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return "--ginkgo.focus=" + strings.Join(quoted, "|")
}

// canGrowMounted reports whether the kernel can grow a mounted ext4, which requires
// CAP_SYS_RESOURCE.
func canGrowMounted(n *namespace) bool {
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(n.t, err)
	const capSysResource = 24
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			var set uint64
			_, err := fmt.Sscanf(strings.TrimSpace(value), "%x", &set)
			require.NoError(n.t, err)
			return set&(1<<capSysResource) != 0
		}
	}
	return false
}

// upstreamImages returns the images that Kubernetes' storage tests use, by name.
func upstreamImages(ctx context.Context, program string) (map[string][]string, error) {
	out, err := exec.CommandContext(ctx, program, "--list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("list the images of Kubernetes' tests: %w", err)
	}
	images := map[string][]string{}
	for reference := range strings.FieldsSeq(string(out)) {
		switch name := imageName(reference); name {
		case "agnhost", "busybox", "glibc-dns-testing", "nginx":
			images[name] = append(images[name], reference)
		}
	}
	return images, nil
}
