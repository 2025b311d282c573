// Package conformance specifies an SPDK target's behavior as one set of assertions about results,
// error codes, the state after each step, and behavior on the wire. The tests always run the suite
// on the simulated target. If a real target is available, they also run the suite on that target,
// both directly and through the proxy. This shows that the simulation behaves like SPDK, and that
// the proxy does not change a target's behavior.
//
// The suite must not depend on facts about the target that are not in Env.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Env describes how to reach a target.
type Env struct {
	// Caller calls the target.
	Caller spdkrpc.Caller
	// Dir is a directory for the files of AIO bdevs and keys. The target must run on this host.
	Dir string
	// Socket is the target's UNIX socket if Caller calls it directly. If it is empty, behavior on
	// the wire is not tested.
	Socket string
	// Validates means that the Caller validates parameters before it sends a call to the target. It
	// refuses invalid calls with -32602, and translates parameters of other releases.
	Validates bool
}

// P is a set of parameters.
type P = map[string]any

// callTimeout is the timeout of each call. The timeout is long enough for a target that polls its
// sockets.
const callTimeout = 30 * time.Second

// A Summary lists the outcomes of the groups in a run.
type Summary struct {
	Passed, Failed []string
	// Skipped lists the groups that were skipped because the target was built without some of the
	// methods that they need. Each group is listed with these methods.
	Skipped map[string][]string
}

// A group is a part of the suite. It is skipped if the target lacks a method that the group needs
// and that the release supports.
type group struct {
	name  string
	test  func(*suite)
	needs []string
}

var groups = []group{
	{"framework", testFramework, nil}, {"decoding", testDecoding, nil}, {"schema", testSchema, nil},
	{"bdevs", testBdevs, nil}, {"aio", testAIO, aio}, {"stacked", testStacked, []string{"bdev_passthru_create"}}, {"qos", testQoS, nil}, {"histograms", testHistograms, aio},
	{"lvstore", testLvstore, aio}, {"lvol", testLvol, aio}, {"lvolSizes", testLvolSizes, aio}, {"lvolNames", testLvolNames, aio},
	{"snapshots", testSnapshots, aio}, {"inflate", testInflate, aio}, {"setParent", testSetParent, aio}, {"external", testExternal, aio}, {"reload", testReload, aio},
	{"transports", testTransports, nil}, {"subsystems", testSubsystems, nil}, {"namespaces", testNamespaces, nil}, {"hosts", testHosts, nil},
	{"listeners", testListeners, nil}, {"ana", testANA, nil}, {"referrals", testReferrals, nil},
	{"keys", testKeys, []string{"keyring_file_add_key"}}, {"crypto", testCrypto, []string{"accel_crypto_key_create", "bdev_crypto_create"}},
	{"iscsiGroups", testIscsiGroups, iscsi}, {"iscsiAuth", testIscsiAuth, iscsi}, {"iscsiNodes", testIscsiNodes, iscsi}, {"iscsiLUNs", testIscsiLUNs, iscsi},
	{"config", testConfig, nil}, {"parallel", testParallel, aio},
}

var (
	aio   = []string{"bdev_aio_create"}
	iscsi = []string{"iscsi_create_target_node"}
)

// Run runs the suite. It deletes everything that it creates, so the target can be used again. Only
// one suite may run on a target at a time.
func Run(t *testing.T, env Env) Summary {
	s := &suite{T: t, env: env, prefix: fmt.Sprintf("conf%06x", rand.Uint32()&0xffffff), summary: &Summary{Skipped: map[string][]string{}}}
	var version spdkrpc.FrameworkVersion
	s.get(&version, "spdk_get_version", nil)
	release, err := rpcschema.ParseRelease(version.Version)
	require.NoError(t, err)
	s.release, s.listed = release, s.methods(nil)
	if s.inStartup() {
		s.run(group{"startup", testStartup, nil})
	}
	for _, g := range groups {
		s.run(g)
	}
	if env.Socket != "" {
		s.run(group{"wire", testWire, nil})
	}
	t.Logf("SPDK %s: %d groups passed, %d failed, %d skipped", release, len(s.summary.Passed), len(s.summary.Failed), len(s.summary.Skipped))
	for _, name := range slices.Sorted(maps.Keys(s.summary.Skipped)) {
		t.Logf("skipped: %s (the target was built without %s)", name, strings.Join(s.summary.Skipped[name], ", "))
	}
	return *s.summary
}

// A suite is a group's view of the target. Its methods fail the test on unexpected outcomes.
type suite struct {
	*testing.T
	env     Env
	release rpcschema.Release
	prefix  string
	listed  []string // the methods that the target supports
	summary *Summary
}

// group runs a part of the suite, or of another group, as a subtest.
func (s *suite) group(name string, test func(*suite)) (passed bool) {
	return s.Run(name, func(t *testing.T) {
		sub := *s
		sub.T = t
		test(&sub)
	})
}

// run runs a group if the target has the methods that it needs.
func (s *suite) run(g group) {
	missing := s.lacks(g.needs)
	passed := s.group(g.name, func(s *suite) {
		if len(missing) > 0 {
			s.Skipf("the target was built without %s", strings.Join(missing, ", "))
		}
		g.test(s)
	})
	switch {
	case len(missing) > 0:
		s.summary.Skipped[g.name] = missing
	case passed:
		s.summary.Passed = append(s.summary.Passed, g.name)
	default:
		s.summary.Failed = append(s.summary.Failed, g.name)
	}
}

// lacks returns the methods that the target lacks although its release supports them.
func (s *suite) lacks(methods []string) (missing []string) {
	for _, name := range methods {
		if m, ok := rpcschema.Default().Method(name); ok && m.Has(s.release) && !slices.Contains(s.listed, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// before reports whether the target is older than a release.
func (s *suite) before(release string) bool {
	return s.release.Before(rpcschema.MustRelease(release))
}

// name returns a unique name.
func (s *suite) name(base string) string { return s.prefix + base }

// nqn returns a unique NQN for a subsystem or host.
func (s *suite) nqn(base string) string { return "nqn.2026-11.io.spdkgate:" + s.prefix + "-" + base }

// call makes a call and returns its raw result.
func (s *suite) call(method string, params any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var raw json.RawMessage
	err := s.env.Caller.Call(ctx, method, params, &raw)
	return raw, err
}

// get makes a call that must succeed, checks the call's result against the schema, and decodes it
// into result.
func (s *suite) get(result any, method string, params any) {
	s.Helper()
	raw, err := s.retryDuringDeletion(0, method, params)
	require.NoError(s, err, "%s %v", method, params)
	value, err := jsonrpc.DecodeValue(raw, jsonrpc.Limits{})
	require.NoError(s, err, method)
	require.NoError(s, rpcschema.Default().ValidateResult(method, value, s.release), "the result of %s: %s", method, raw)
	if result != nil {
		require.NoError(s, json.Unmarshal(raw, result), "%s: %s", method, raw)
	}
}

// ok makes a call that must succeed.
func (s *suite) ok(method string, params any) {
	s.Helper()
	s.get(nil, method, params)
}

// text makes a call and returns its result, which must be a string.
func (s *suite) text(method string, params any) (text string) {
	s.Helper()
	s.get(&text, method, params)
	return text
}

// fails makes a call that the target must refuse with the given code.
func (s *suite) fails(code int, method string, params any) {
	s.Helper()
	raw, err := s.retryDuringDeletion(code, method, params)
	var e *spdkrpc.Error
	require.ErrorAs(s, err, &e, "%s %v succeeded with %s", method, params, raw)
	if s.env.Validates && !s.valid(method, params) {
		code = jsonrpc.CodeInvalidParams
	}
	require.Equal(s, code, e.Code, "%s %v: %v", method, params, err)
}

// retryDuringDeletion makes a call on a subsystem. Releases before v24.09 may respond to a deletion
// before it is complete, and they refuse other calls with -32603 until the deletion is complete.
// retryDuringDeletion retries such a call, unless -32603 is the expected code.
func (s *suite) retryDuringDeletion(code int, method string, params any) (raw json.RawMessage, err error) {
	for range busyTries {
		raw, err = s.call(method, params)
		var e *spdkrpc.Error
		if !s.before("v24.09") || !strings.HasPrefix(method, "nvmf_subsystem_") || !errors.As(err, &e) || e.Code != internalError || code == internalError {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return raw, err
}

const busyTries = 100

// valid reports whether parameters match the schema.
func (s *suite) valid(method string, params any) bool {
	text, err := jsonrpc.Marshal(params)
	require.NoError(s, err)
	value, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	require.NoError(s, err)
	object, isObject := value.(map[string]any)
	err = rpcschema.Default().ValidateParams(method, object, s.release)
	var unknown *rpcschema.UnknownMethodError
	if errors.As(err, &unknown) {
		return true // let the target report the unknown method
	}
	return err == nil && (isObject || value == nil)
}

// undo schedules a call for the end of the group. The response is ignored.
func (s *suite) undo(method string, params any) {
	s.Cleanup(func() { _, _ = s.call(method, params) })
}

// file creates a sparse file on the target's host.
func (s *suite) file(size int64) string {
	s.Helper()
	f, err := os.CreateTemp(s.env.Dir, s.prefix)
	require.NoError(s, err)
	s.Cleanup(func() { _ = os.Remove(f.Name()) })
	require.NoError(s, f.Truncate(size))
	require.NoError(s, f.Close())
	path, err := filepath.Abs(f.Name())
	require.NoError(s, err)
	return path
}

// malloc creates a malloc bdev of the given size in MiB, with 4 KiB blocks.
func (s *suite) malloc(base string, mib int) string {
	s.Helper()
	name := s.name(base)
	s.undo("bdev_malloc_delete", P{"name": name})
	require.Equal(s, name, s.text("bdev_malloc_create", P{"name": name, "num_blocks": mib << 8, "block_size": 4096}))
	return name
}

// aio creates an AIO bdev on a new file of the given size in MiB.
func (s *suite) aio(base string, mib int64) (name, path string) {
	s.Helper()
	name, path = s.name(base), s.file(mib<<20)
	s.undo("bdev_aio_delete", P{"name": name})
	s.ok("bdev_aio_create", P{"name": name, "filename": path, "block_size": 4096})
	return name, path
}

// store creates an lvstore of 127 clusters of 4 MiB on its own AIO bdev.
func (s *suite) store(base string) string {
	s.Helper()
	bdev, _ := s.aio(base+"base", 512)
	name := s.name(base)
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": name})
	s.ok("bdev_lvol_create_lvstore", P{"bdev_name": bdev, "lvs_name": name})
	return name
}

// lvol creates a volume and returns its UUID.
func (s *suite) lvol(store, name string, mib int, thin bool) string {
	s.Helper()
	return s.text("bdev_lvol_create", P{"lvs_name": store, "lvol_name": name, "size_in_mib": mib, "thin_provision": thin})
}

// bdev returns the description of a bdev.
func (s *suite) bdev(name string) spdkrpc.BdevInfo {
	s.Helper()
	var list []spdkrpc.BdevInfo
	s.get(&list, "bdev_get_bdevs", P{"name": name})
	require.Len(s, list, 1)
	return list[0]
}

// gone checks that no bdev with the given name exists.
func (s *suite) gone(name string) {
	s.Helper()
	s.fails(noDevice, "bdev_get_bdevs", P{"name": name})
}

// free returns the number of free clusters of an lvstore.
func (s *suite) free(store string) uint64 {
	s.Helper()
	return s.lvstore(store).FreeClusters
}

func (s *suite) lvstore(name string) spdkrpc.LvolStore {
	s.Helper()
	var list []spdkrpc.LvolStore
	s.get(&list, "bdev_lvol_get_lvstores", P{"lvs_name": name})
	require.Len(s, list, 1)
	return list[0]
}

// These are the codes of SPDK's errors.
const (
	wrongState     = -1
	notPermitted   = -1
	noEntry        = -2
	noMemory       = -12
	busy           = -16
	exists         = -17
	noDevice       = -19
	isDirectory    = -21
	invalidValue   = -22
	timedOut       = -110
	noKey          = -126
	invalidRequest = jsonrpc.CodeInvalidRequest
	noMethod       = jsonrpc.CodeMethodNotFound
	invalidParams  = jsonrpc.CodeInvalidParams
	internalError  = jsonrpc.CodeInternalError
	parseError     = jsonrpc.CodeParseError
)

// unknownUUID is a UUID that belongs to no object.
const unknownUUID = "00000000-0000-4000-8000-00000000dead"
