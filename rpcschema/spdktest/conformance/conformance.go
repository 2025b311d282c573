// Package conformance says how an SPDK target behaves, in one set of
// assertions: results, error codes, what is there after each step, and manners
// on the wire. It runs on the simulated target always, and on a real one when
// there is one, each by every path that leads there. So it keeps the simulation
// honest, and the proxy transparent.
//
// It may not know what it runs against, but for what Env says.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Env is the way to a target.
type Env struct {
	// Caller leads to the target.
	Caller spdkrpc.Caller
	// Dir is a folder on the target's host, which must be this one: files for
	// AIO bdevs and keys are made in it.
	Dir string
	// Socket is the target's UNIX socket if Caller leads straight to it; left
	// out, manners on the wire are not looked at.
	Socket string
	// Validates says that parameters are held against the schema on the way:
	// what breaks it never reaches the target and is answered with -32602; what
	// only other releases take is put into the target's own terms.
	Validates bool
}

// P are parameters.
type P = map[string]any

// callTimeout is ample for a target that polls.
const callTimeout = 30 * time.Second

// Run runs the suite. Whatever it makes on the target, it takes away again, so
// that targets can be shared; no two suites may run on one at a time.
func Run(t *testing.T, env Env) {
	s := &suite{T: t, env: env, prefix: fmt.Sprintf("conf%06x", rand.Uint32()&0xffffff)}
	var version spdkrpc.FrameworkVersion
	s.get(&version, "spdk_get_version", nil)
	release, err := rpcschema.ParseRelease(version.Version)
	require.NoError(t, err)
	s.release = release
	if s.inStartup() {
		s.group("startup", testStartup)
	}
	for _, g := range []struct {
		name string
		test func(*suite)
	}{
		{"framework", testFramework}, {"decoding", testDecoding}, {"schema", testSchema},
		{"bdevs", testBdevs}, {"aio", testAIO}, {"stacked", testStacked}, {"qos", testQoS},
		{"lvstore", testLvstore}, {"lvol", testLvol}, {"lvolSizes", testLvolSizes}, {"lvolNames", testLvolNames},
		{"snapshots", testSnapshots}, {"inflate", testInflate}, {"setParent", testSetParent}, {"external", testExternal}, {"reload", testReload},
		{"transports", testTransports}, {"subsystems", testSubsystems}, {"namespaces", testNamespaces}, {"hosts", testHosts},
		{"listeners", testListeners}, {"ana", testANA}, {"referrals", testReferrals}, {"keys", testKeys}, {"crypto", testCrypto},
		{"iscsiGroups", testIscsiGroups}, {"iscsiAuth", testIscsiAuth}, {"iscsiNodes", testIscsiNodes}, {"iscsiLUNs", testIscsiLUNs}, {"config", testConfig},
		{"parallel", testParallel},
	} {
		s.group(g.name, g.test)
	}
	if env.Socket != "" {
		s.group("wire", testWire)
	}
}

// A suite is one group's view of the target. Its methods fail the test.
type suite struct {
	*testing.T
	env     Env
	release rpcschema.Release
	prefix  string
}

func (s *suite) group(name string, test func(*suite)) {
	s.Run(name, func(t *testing.T) {
		sub := *s
		sub.T = t
		test(&sub)
	})
}

// before reports whether the target is older than a release.
func (s *suite) before(release string) bool {
	return s.release.Before(rpcschema.MustRelease(release))
}

// name is a name that nobody else uses.
func (s *suite) name(base string) string { return s.prefix + base }

// nqn is the NQN of a subsystem or host that nobody else uses.
func (s *suite) nqn(base string) string { return "nqn.2026-11.io.spdkgate:" + s.prefix + "-" + base }

// call makes a call and returns its raw result.
func (s *suite) call(method string, params any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var raw json.RawMessage
	err := s.env.Caller.Call(ctx, method, params, &raw)
	return raw, err
}

// get makes a call that must succeed, holds its result against the schema and
// decodes it into result.
func (s *suite) get(result any, method string, params any) {
	s.Helper()
	raw, err := s.call(method, params)
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

// text makes a call whose result is a string.
func (s *suite) text(method string, params any) (text string) {
	s.Helper()
	s.get(&text, method, params)
	return text
}

// fails makes a call that the target must refuse with a code.
func (s *suite) fails(code int, method string, params any) {
	s.Helper()
	raw, err := s.call(method, params)
	var e *spdkrpc.Error
	require.ErrorAs(s, err, &e, "%s %v was answered with %s", method, params, raw)
	if s.env.Validates && !s.valid(method, params) {
		code = jsonrpc.CodeInvalidParams
	}
	require.Equal(s, code, e.Code, "%s %v: %v", method, params, err)
}

// valid reports whether parameters keep to the schema.
func (s *suite) valid(method string, params any) bool {
	text, err := jsonrpc.Marshal(params)
	require.NoError(s, err)
	value, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	require.NoError(s, err)
	object, isObject := value.(map[string]any)
	err = rpcschema.Default().ValidateParams(method, object, s.release)
	var unknown *rpcschema.UnknownMethodError
	if errors.As(err, &unknown) {
		return true // not about parameters
	}
	return err == nil && (isObject || value == nil)
}

// undo makes a call when the group is over, whatever it answers.
func (s *suite) undo(method string, params any) {
	s.Cleanup(func() { _, _ = s.call(method, params) })
}

// file makes a sparse file on the target's host.
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

// malloc makes a malloc bdev of so many MiB in blocks of 4 KiB.
func (s *suite) malloc(base string, mib int) string {
	s.Helper()
	name := s.name(base)
	s.undo("bdev_malloc_delete", P{"name": name})
	require.Equal(s, name, s.text("bdev_malloc_create", P{"name": name, "num_blocks": mib << 8, "block_size": 4096}))
	return name
}

// aio makes an AIO bdev on a new file of so many MiB.
func (s *suite) aio(base string, mib int64) (name, path string) {
	s.Helper()
	name, path = s.name(base), s.file(mib<<20)
	s.undo("bdev_aio_delete", P{"name": name})
	s.ok("bdev_aio_create", P{"name": name, "filename": path, "block_size": 4096})
	return name, path
}

// store makes a lvstore of 127 clusters of 4 MiB on an AIO bdev of its own.
func (s *suite) store(base string) string {
	s.Helper()
	bdev, _ := s.aio(base+"base", 512)
	name := s.name(base)
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": name})
	s.ok("bdev_lvol_create_lvstore", P{"bdev_name": bdev, "lvs_name": name})
	return name
}

// lvol makes a volume and returns its UUID.
func (s *suite) lvol(store, name string, mib int, thin bool) string {
	s.Helper()
	return s.text("bdev_lvol_create", P{"lvs_name": store, "lvol_name": name, "size_in_mib": mib, "thin_provision": thin})
}

// bdev describes a bdev.
func (s *suite) bdev(name string) spdkrpc.BdevInfo {
	s.Helper()
	var list []spdkrpc.BdevInfo
	s.get(&list, "bdev_get_bdevs", P{"name": name})
	require.Len(s, list, 1)
	return list[0]
}

// gone holds that there is no bdev of a name.
func (s *suite) gone(name string) {
	s.Helper()
	s.fails(noDevice, "bdev_get_bdevs", P{"name": name})
}

// free is how many free clusters a lvstore has.
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

// Codes that SPDK answers with.
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

// unknownUUID is nobody's.
const unknownUUID = "00000000-0000-4000-8000-00000000dead"
