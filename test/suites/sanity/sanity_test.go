package sanity

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A variant describes one run of the suite.
type variant struct {
	Name string
	// TargetType is as in config.json. Only loop attaches and mounts real devices.
	TargetType string
	AccessType string // mount or block
	FSType     string
	Real       bool // the target is a real spdk_tgt
	Tenant     bool // the driver's user belongs to a tenant
	SizeMiB    int64
}

var variants = []variant{
	{Name: "ext4 on loop devices", TargetType: "loop", AccessType: "mount", SizeMiB: 64},
	{Name: "xfs on loop devices", TargetType: "loop", AccessType: "mount", FSType: "xfs", SizeMiB: 320},
	{Name: "raw block on loop devices", TargetType: "loop", AccessType: "block", SizeMiB: 64},
	{Name: "iSCSI, controller", TargetType: "iscsi", AccessType: "mount", SizeMiB: 64},
	{Name: "NVMe, controller, as a tenant", TargetType: "nvme-tcp", AccessType: "mount", Tenant: true, SizeMiB: 64},
	{Name: "NVMe on real SPDK, controller, as a tenant", TargetType: "nvme-tcp", AccessType: "mount", Real: true, Tenant: true, SizeMiB: 64},
	{Name: "NVMe on real SPDK, controller", TargetType: "nvme-tcp", AccessType: "mount", Real: true, SizeMiB: 64},
	{Name: "iSCSI on real SPDK, controller", TargetType: "iscsi", AccessType: "mount", Real: true, SizeMiB: 64},
}

// A spec is the result of one specification in the suite.
type spec struct {
	Text, State, Failure string
	Took                 time.Duration
}

// unsupported matches the specifications that may be skipped: those for capabilities that the
// driver does not report, and one that requires the controller to count a node's volumes, which the
// scheduler does in Kubernetes.
var unsupported = regexp.MustCompile(`SnapshotMetadata|ControllerModifyVolume|ModifyVolume|volume attribute class|` +
	`VolumeHealth \[Controller|ControllerGetVolumeHealth|ControllerListVolumeHealth|NodeGetStorageHealth|accessibility requirements|` +
	`already published but is incompatible|more volumes than the node max attach limit`)

const variantEnv = "SPDKGATE_SANITY_VARIANT"

func TestMain(m *testing.M) {
	if text := os.Getenv(variantEnv); text != "" {
		var v variant
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(runSuite(v))
	}
	os.Exit(m.Run())
}

func TestSanity(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			if v.Real != (realtarget.Given()) {
				t.Skip("with SPDK_SOCK the variants on a real target run, without it the others")
			}
			if v.Real {
				realtarget.Socket(t)
			}
			if v.TargetType == "loop" && os.Getuid() != 0 {
				t.Skip("loop devices and mounts need root")
			}
			report := filepath.Join(t.TempDir(), "report.json")
			text, err := json.Marshal(v)
			require.NoError(t, err)
			cmd := exec.Command(os.Args[0], "--ginkgo.no-color", "--ginkgo.succinct")
			cmd.Env = append(os.Environ(), variantEnv+"="+string(text), reportEnv+"="+report, "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			checkReport(t, report, string(out), err)
		})
	}
}

// checkReport checks the result of each specification. out and runErr are the output and the error
// of the process.
func checkReport(t *testing.T, report, out string, runErr error) {
	text, err := os.ReadFile(report)
	require.NoError(t, err, "the suite did not run: %v\n%s", runErr, out)
	var specs []spec
	require.NoError(t, json.Unmarshal(text, &specs))
	counts := map[string]int{}
	for _, s := range specs {
		counts[s.State]++
		switch s.State {
		case "passed", "pending": // the suite itself marks one specification as pending
		case "skipped":
			assert.Regexp(t, unsupported, s.Text, "skipped, although the driver supports it")
		default:
			assert.Fail(t, s.State+": "+s.Text, s.Failure)
		}
	}
	assert.Greater(t, counts["passed"], 60)
	if t.Failed() || runErr != nil {
		t.Log(tail(out, 400))
	}
	assert.NoError(t, runErr)
	t.Logf("%d specifications: %d passed, %d skipped (not supported), %d pending (in the suite itself)", len(specs), counts["passed"], counts["skipped"], counts["pending"])
}

func tail(s string, lines int) string {
	all := strings.Split(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
