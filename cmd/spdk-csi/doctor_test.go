package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// newTarget starts a simulated target behind a stand-in proxy, and configures the driver to use it.
func newTarget(t *testing.T) *spdkrpc.Client {
	t.Helper()
	return newTargets(t, 1)[0]
}

// startTarget starts a simulated target with an lvstore lvs0 behind a stand-in proxy, and returns
// the URL of the proxy.
func startTarget(t *testing.T, o spdktest.Options) (rpc *spdkrpc.Client, url string) {
	t.Helper()
	sim, err := spdktest.Start(o)
	require.NoError(t, err)
	socket := spdkrpc.NewSocket(sim.Socket())
	gateway := httptest.NewServer(forward(socket))
	t.Cleanup(func() {
		gateway.Close()
		assert.NoError(t, socket.Close())
		assert.NoError(t, sim.Close())
	})
	rpc = spdkrpc.NewClient(socket)
	_, err = rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk"), NumBlocks: 100 << 8, BlockSize: 4096})
	require.NoError(t, err)
	_, err = rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs0"})
	require.NoError(t, err)
	return rpc, gateway.URL
}

// newTargets starts simulated targets t0, t1 and so on, each with an lvstore lvs0, and writes a
// configuration that contains them.
func newTargets(t *testing.T, count int) (clients []*spdkrpc.Client) {
	t.Helper()
	var nodes, tokens []string
	for i := range count {
		rpc, url := startTarget(t, spdktest.Options{})
		nodes = append(nodes, fmt.Sprintf(`{"name": "t%d", "rpcURL": "%s", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "lvstores": ["lvs0"]}`, i, url))
		tokens = append(tokens, fmt.Sprintf(`{"name": "t%d", "username": "u", "password": "p"}`, i))
		clients = append(clients, rpc)
	}
	configure(t, `{"nodes": [`+strings.Join(nodes, ", ")+`]}`, `{"rpcTokens": [`+strings.Join(tokens, ", ")+`]}`)
	return clients
}

// configure writes the controller's configuration and Secret.
func configure(t *testing.T, config, secret string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("SPDKCSI_CONFIG", filepath.Join(dir, "config.json"))
	t.Setenv("SPDKCSI_SECRET", filepath.Join(dir, "secret.json"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret.json"), []byte(secret), 0o600))
}

// forward passes calls on to a target, as the target's proxy does.
func forward(socket *spdkrpc.Socket) http.HandlerFunc {
	proxy := &drivertest.KeyPlacer{Caller: socket, Info: func() *spdkrpc.ProxyTargetInfo { return &spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(false)} }}
	return func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if json.NewDecoder(r.Body).Decode(&req) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var params any
		if len(req.Params) > 0 {
			params = req.Params
		}
		var result json.RawMessage
		reply := map[string]any{"jsonrpc": "2.0", "id": req.ID}
		var e *spdkrpc.Error
		if err := proxy.Call(r.Context(), req.Method, params, &result); errors.As(err, &e) {
			reply["error"] = map[string]any{"code": e.Code, "message": e.Message}
		} else {
			reply["result"] = result
		}
		_ = json.NewEncoder(w).Encode(reply)
	}
}

// diagnose runs the command, and returns its output and exit code.
func diagnose(t *testing.T, in string, args ...string) (out string, code int, err error) {
	t.Helper()
	cmd := doctorCommand(time.Millisecond)
	var text bytes.Buffer
	cmd.SetArgs(append([]string{}, args...)) // with nil, cobra would use the test binary's arguments
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&text)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err = cmd.ExecuteContext(t.Context()); err != nil {
		var e exitCode
		require.ErrorAs(t, err, &e)
		code = e.code
	}
	return text.String(), code, err
}

func TestDoctorReportsAndRepairs(t *testing.T) {
	rpc := newTarget(t)
	out, code, _ := diagnose(t, "")
	assert.Equal(t, "Nothing was found.\n", out)
	assert.Zero(t, code)
	out, code, _ = diagnose(t, "", "--json")
	assert.JSONEq(t, `{"confirmed": true, "findings": []}`, out)
	assert.Zero(t, code)

	gone := export.NQN(uuid.NewString())
	require.NoError(t, rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: gone}))
	orphan, err := rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 4})
	require.NoError(t, err)
	subsystems := func() (names []string) {
		subs, err := rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
		require.NoError(t, err)
		for _, s := range subs {
			if s.Subtype == "NVMe" {
				names = append(names, s.NQN)
			}
		}
		return names
	}

	// Without --fix, the command prints the repairs that it would make, but changes nothing.
	out, code, _ = diagnose(t, "")
	assert.Equal(t, exitFindings, code)
	assert.Contains(t, out, "t0: leaked-export: subsystem "+gone)
	assert.Contains(t, out, "would do: delete it")
	assert.Contains(t, out, "by hand:  spdk-proxy call nvmf_delete_subsystem nqn="+gone+" --url http://")
	assert.Contains(t, out, "1 finding; --fix would repair 1. Nothing was changed.")
	out, code, _ = diagnose(t, "", "--wait=0")
	assert.Equal(t, exitFindings, code)
	assert.Contains(t, out, "would do: nothing")
	list := "# none\nt0:" + uuid.NewString()
	out, code, _ = diagnose(t, list, "--volumes=-", "--json")
	assert.Equal(t, exitFindings, code)
	var report struct {
		Confirmed bool
		Findings  []struct {
			Kind, Volume, Repair, Error string
			Repaired                    bool `json:"mended"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Len(t, report.Findings, 3)
	assert.Equal(t, "orphan", report.Findings[0].Kind)
	assert.Equal(t, "t0:"+orphan, report.Findings[0].Volume)
	assert.Empty(t, report.Findings[0].Repair)
	assert.Equal(t, []string{gone}, subsystems())

	// With --fix, the command repairs objects that contain no data. It deletes an orphan only if
	// --delete-volume names it.
	out, code, _ = diagnose(t, list, "--volumes=-", "--fix")
	assert.Equal(t, exitFindings, code, "the orphan is left, and the missing volume")
	assert.Contains(t, out, "will do:  delete it")
	assert.Contains(t, out, "repaired: t0: subsystem "+gone)
	assert.Empty(t, subsystems())
	lvols, err := rpc.BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	require.Len(t, lvols, 1)
	out, _, _ = diagnose(t, list, "--volumes=-")
	remedy := regexp.MustCompile("spdk-csi doctor (.* t0:" + orphan + ") with the list").FindStringSubmatch(out)
	require.Len(t, remedy, 2, out)
	out, _, _ = diagnose(t, list, append(strings.Fields(remedy[1]), "--json")...)
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.True(t, report.Findings[0].Repaired)
	lvols, err = rpc.BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	assert.Empty(t, lvols)
	out, code, _ = diagnose(t, "", "--fix")
	assert.Equal(t, "Nothing was found.\n", out)
	assert.Zero(t, code)
}

// A wrong password and a certificate from another authority are separate findings, which doctor
// prints after its first read.
func TestDoctorReportsRefusalsImmediately(t *testing.T) {
	refusing := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"authentication failed: wrong password"}}`)
	}))
	defer refusing.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(der []byte) {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	}
	configure(t, `{"nodes": [{"name": "t0", "rpcURL": "`+refusing.URL+`", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "lvstores": ["lvs0"], "caFile": "`+file+`"}]}`,
		`{"rpcTokens": [{"name": "t0", "username": "csi", "password": "pa$$word"}]}`)

	write(refusing.Certificate().Raw)
	out, code, _ := diagnose(t, "", "--wait=24h", "--volumes=-")
	assert.Equal(t, exitFindings, code)
	assert.Contains(t, out, "t0: credentials-refused: target t0\n  problem:  the target's proxy refused the user name \"csi\" and its password, which the controller's secret.json contains for this target")
	assert.Contains(t, out, "authentication failed: wrong password")
	assert.Contains(t, out, "by hand:  correct the target's entry in rpcTokens of secret.json")
	assert.NotContains(t, out, "pa$$word")

	write(otherAuthority(t))
	out, code, _ = diagnose(t, "", "--wait=24h", "--volumes=-")
	assert.Equal(t, exitFindings, code)
	assert.Contains(t, out, "t0: certificate-untrusted: target t0")
	assert.Contains(t, out, "caFile is "+file)
	assert.Contains(t, out, "ca.certificates")
}

// otherAuthority returns the certificate of a certificate authority that has issued no
// certificates.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return der
}

func TestDoctorRejectsInvalidArguments(t *testing.T) {
	newTarget(t)
	file := filepath.Join(t.TempDir(), "list")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"short wait":        {[]string{"--fix", "--wait=0"}, "--fix needs --wait"},
		"delete without":    {[]string{"--delete-volume=t0:x"}, "--delete-volume needs --fix and --volumes"},
		"an empty list":     {[]string{"--fix", "--volumes=" + file, "--delete-volume=t0:" + uuid.NewString()}, "no volume of the driver"},
		"not in the list":   {[]string{"--volumes=" + file + "x"}, "no such file"},
		"unknown target":    {[]string{"--target=t9"}, "--target t9"},
		"no time":           {[]string{"--timeout=0"}, "must not be negative"},
		"arguments":         {[]string{"x"}, "x"},
		"unknown flag":      {[]string{"--mend"}, "unknown flag"},
		"a broken list":     {[]string{"--volumes=-"}, "--volumes: the list of volumes, line 1"},
		"no such orphan id": {[]string{"--volumes=-", "--fix", "--delete-volume=t0:x"}, "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, code, err := diagnose(t, "x", c.args...)
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, exitError, code)
		})
	}
	t.Setenv("SPDKCSI_CONFIG", file+"x")
	_, code, err := diagnose(t, "")
	require.ErrorContains(t, err, "read the configuration")
	assert.Equal(t, exitError, code)
}
