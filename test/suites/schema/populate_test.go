package schema

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/sample/broken"
)

const (
	testNQN = "nqn.2016-06.io.spdk:cnode1"
	testIQN = "iqn.2016-06.io.spdk:disk1"
)

// prepare creates the files named in the calls, and the placeholders for them.
func (b *bench) prepare() *strings.Replacer {
	dir := b.TempDir()
	disk, key := filepath.Join(dir, "disk"), filepath.Join(dir, "key")
	require.NoError(b, os.WriteFile(disk, nil, 0o600))
	require.NoError(b, os.Truncate(disk, 1<<30))
	require.NoError(b, os.WriteFile(key, []byte(dhchapKey()), 0o600))
	words := []string{"$DISK", disk, "$KEY", key, "$NQN", testNQN, "$IQN", testIQN, "$NAME", "schema" + fmt.Sprint(os.Getpid())}
	if !b.inStartup() {
		words = append(words, "$CPUMASK", b.cpumask())
	}
	for i := range 4 {
		words = append(words, fmt.Sprintf("$PORT%d", i), freePort(b))
	}
	if b.release.Before(rpcschema.MustRelease("v23.05")) {
		words = append(words, "$SIZE16", fmt.Sprint(16<<20), "$SIZE64", fmt.Sprint(64<<20), "$SIZE80", fmt.Sprint(80<<20), "$SIZE", "size")
	} else {
		words = append(words, "$SIZE16", "16", "$SIZE64", "64", "$SIZE80", "80", "$SIZE", "size_in_mib")
	}
	return strings.NewReplacer(words...)
}

// cpumask returns a mask for the target's first core.
func (b *bench) cpumask() string {
	answer, err := b.call("framework_get_reactors", nil)
	require.NoError(b, err)
	core, err := answer.(map[string]any)["reactors"].([]any)[0].(map[string]any)["lcore"].(json.Number).Int64()
	require.NoError(b, err)
	return maskOf(uint(core))
}

// maskOf returns a core as a hexadecimal mask for SPDK.
func maskOf(core uint) string { return new(big.Int).Lsh(big.NewInt(1), core).Text(16) }

func TestCoreMasksAreFormatted(t *testing.T) {
	for core, mask := range map[uint]string{0: "1", 1: "2", 5: "20", 64: "10000000000000000"} {
		assert.Equal(t, mask, maskOf(core))
	}
}

// names holds the names of the objects created by make.calls, by resource kind.
func (b *bench) names() map[string]string {
	names := map[string]string{
		"bdev": "malloc0", "lvstore": "lvs0", "lvol-name": "vol0", "nqn": testNQN, "host-nqn": "nqn.2016-06.io.spdk:host1",
		"iqn": testIQN, "key": "key0", "crypto-key": "ckey0",
	}
	stores, err := b.call("bdev_lvol_get_lvstores", nil)
	require.NoError(b, err)
	names["lvstore-uuid"] = stores.([]any)[0].(map[string]any)["uuid"].(string)
	return names
}

// play sends the calls in a file. Each call is first sent with every kind of mistake, and then
// unchanged.
func (b *bench) play(file string, words *strings.Replacer) {
	source, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(b, err)
	for line := range strings.Lines(string(source)) {
		line, maybe := strings.CutPrefix(strings.TrimSpace(line), "? ")
		method, params, ok := strings.Cut(line, " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		m, ok := b.doc.Method(method)
		require.True(b, ok, method)
		if !m.Has(b.release) || !slices.Contains(b.listed, method) {
			continue
		}
		v, err := jsonrpc.DecodeValue([]byte(words.Replace(params)), jsonrpc.Limits{})
		require.NoError(b, err, line)
		b.step(m, v.(map[string]any), maybe)
	}
}

func (b *bench) step(m *rpcschema.Method, params map[string]any, maybe bool) {
	if err := b.doc.ValidateParams(m.Name, params, b.release); maybe && err != nil {
		b.Logf("%s: not in this release: %v", m.Name, err)
		return
	}
	require.NoError(b, b.doc.ValidateParams(m.Name, params, b.release), "%s %v", m.Name, params)
	before := len(b.tally.refused)
	b.refuses(m, broken.From(sample.Maker{Document: b.doc, Release: b.release, Names: nowhere}, m, params), true)
	result, err := b.call(m.Name, params)
	for tries := 0; err != nil && m.Name == "bdev_set_qos_limit" && tries < 50; tries++ { // SPDK refuses while it applies an earlier change
		time.Sleep(100 * time.Millisecond)
		result, err = b.call(m.Name, params)
	}
	if m.Name == "bdev_nvme_detach_controller" {
		b.disconnected()
	}
	if maybe && err != nil {
		b.Logf("%s %v: %v", m.Name, params, err)
		b.alive(m.Name)
		return
	}
	require.NoError(b, err, "%s %v", m.Name, params)
	require.NoError(b, b.doc.ValidateResult(m.Name, result, b.release), m.Name)
	b.prove(before, nil)
}

// disconnected waits until the target is no longer its own host. Namespaces must not change until
// the target has disconnected. SPDK would request details of the change on the very thread that
// must respond, and would wait there (nvme_ctrlr_process_async_event). The target would then never
// respond to any call again. bdev_nvme_detach_controller times out after 10 s, and the target may
// still be connected.
func (b *bench) disconnected() {
	require.EventuallyWithT(b, func(c *assert.CollectT) {
		controllers, err := b.call("nvmf_subsystem_get_controllers", map[string]any{"nqn": testNQN})
		assert.NoError(c, err)
		assert.Empty(c, controllers)
	}, 3*answerWithin, 100*time.Millisecond, "the target is still connected to itself: the next change of a namespace would block it permanently")
}

// dhchapKey makes a key for DH-HMAC-CHAP in the form that SPDK reads.
func dhchapKey() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	sum := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(secret[:]))
	return "DHHC-1:00:" + base64.StdEncoding.EncodeToString(append(secret[:], sum...)) + ":"
}

func freePort(b *bench) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}
