package docs

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// The test builds the program from docs/go-client.md in a separate module, as a reader would, and
// runs it.
func TestGoClientPageProgramRuns(t *testing.T) {
	page, err := os.ReadFile("../../../docs/go-client.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, block, "the page has no program")
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	dir := t.TempDir()
	sums, err := os.ReadFile("../../../go.sum")
	require.NoError(t, err)
	for name, text := range map[string][]byte{
		"main.go": block[1], "go.sum": sums,
		"go.mod": []byte("module example.com/try\n\ngo 1.26\n\nrequire github.com/spdkgate/spdkgate v0.0.0\n\nreplace github.com/spdkgate/spdkgate => " + root + "\n"),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	program := filepath.Join(dir, "try")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	target, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	caller := spdkrpc.NewSocket(target.Socket())
	t.Cleanup(func() { _ = caller.Close() })
	client, ctx, disk := spdkrpc.NewClient(caller), context.Background(), "disk0"
	_, err = client.BdevMallocCreate(ctx, spdkrpc.BdevMallocCreateParams{Name: &disk, NumBlocks: 1 << 17, BlockSize: 4096})
	require.NoError(t, err)
	_, err = client.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: disk, LvsName: "lvs0"})
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	run := exec.Command(program, target.Socket(), "lvs0")
	run.Stdout, run.Stderr = &stdout, &stderr
	require.NoError(t, run.Run(), "%s", stderr.String())
	assert.Regexp(t, `^[0-9a-f-]{36} vol1\n$`, stdout.String())
	lvols, err := client.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	assert.Empty(t, lvols, "the program must delete the volumes that it created")
}
