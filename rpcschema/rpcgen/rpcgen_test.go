package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestGeneratedFilesMatchTheGoldenFiles(t *testing.T) {
	text, err := assemble("testdata/areas")
	require.NoError(t, err)
	doc, err := rpcschema.Load(text)
	require.NoError(t, err)
	require.NoError(t, lint(doc))
	files, err := generate(doc)
	require.NoError(t, err)
	require.Contains(t, files, "toy_gen.go")
	golden(t, "openrpc.golden", text)
	golden(t, "toy_gen.golden", files["toy_gen.go"])
}

func golden(t *testing.T, name string, got []byte) {
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "run go test ./rpcschema/rpcgen -update, and review the difference")
}

// TestCommittedFilesAreUpToDate fails if an area was edited without running `make generate`.
func TestCommittedFilesAreUpToDate(t *testing.T) {
	dir := t.TempDir()
	openrpc := filepath.Join(dir, "openrpc.json")
	require.NoError(t, run("../areas", outputs{openrpc: openrpc, client: dir, manual: filepath.Join(dir, "manual")}))
	same := func(committed, made string) {
		want, err := os.ReadFile(made)
		require.NoError(t, err)
		got, err := os.ReadFile(committed)
		require.NoError(t, err)
		assert.True(t, string(want) == string(got), "%s differs from what the area files produce: run make generate", committed)
	}
	same("../openrpc.json", openrpc)
	for pattern, folder := range map[string]string{"*_gen.go": "../spdkrpc", "manual/*.md": "../../docs/methods"} {
		made, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, made)
		committed, err := filepath.Glob(filepath.Join(folder, filepath.Base(pattern)))
		require.NoError(t, err)
		require.Len(t, committed, len(made), "a generated file is left over or missing: run make generate")
		for _, path := range made {
			same(filepath.Join(folder, filepath.Base(path)), path)
		}
	}
}

// The HTML manual contains every method, and every link in it has a target.
func TestHTMLManualContainsEveryMethod(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, run("../areas", outputs{html: dir}))
	ids, links := map[string]bool{}, map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.html"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name := filepath.Base(file)
		ids[name] = true
		for _, id := range regexp.MustCompile(`id="([^"]*)"`).FindAllSubmatch(text, -1) {
			ids[name+"#"+string(id[1])] = true
		}
		for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllSubmatch(text, -1) {
			target := string(link[1])
			if strings.HasPrefix(target, "#") {
				target = name + target
			}
			links[target] = true
		}
	}
	for link := range links {
		assert.True(t, ids[link], "%s has no target", link)
	}
	for _, m := range rpcschema.Default().Methods() {
		assert.True(t, ids[m.Area()+".html#"+m.Name], "no page has %s", m.Name)
	}
}

func TestMistakesAreReported(t *testing.T) {
	for name, c := range map[string]struct{ yaml, says string }{
		"unknown key":      {"methodes: []", "methodes"},
		"no name":          {"methods: [{summary: X.}]", "a method without a name"},
		"twice":            {"methods: [{name: a}, {name: a}]", "method a is listed twice"},
		"key twice":        {"methods: [{name: a, summary: A., summary: B.}]", "summary"},
		"no state":         {"methods: [{name: a, summary: A., params: [], result: {name: r, schema: {type: boolean}}}]", "x-spdk-state is missing"},
		"no sentence":      {"methods: [{name: a, summary: A, params: [], result: {name: r, schema: {type: boolean}}}]", "is not a sentence"},
		"no result":        {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: []}]", "result is missing"},
		"bad ref":          {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [], result: {name: r, schema: {$ref: '#/components/schemas/Nix'}}}]", "names no schema"},
		"bad resource":     {"schemas: {A: {type: string, x-spdk-resource: bdeff}}", "bdeff"},
		"bad opening":      {"schemas: {A: {type: boolean, x-spdk-opens: {to: all, if: [true]}}}", "x-spdk-opens must name one of any-host"},
		"opens by nothing": {"schemas: {A: {type: boolean, x-spdk-opens: {to: any-host}}}", "and the values that open it"},
		"allocates text":   {"schemas: {A: {type: string, x-spdk-allocates: {}}}", "x-spdk-allocates belongs to an integer"},
		"allocates more":   {"schemas: {A: {type: integer, default: 9, x-spdk-allocates: {at-most: 8}}}", "its default"},
		"bad form":         {"methods: [{name: a, summary: A., x-spdk-state: [runtime], x-spdk-params: empty, params: [], result: {name: r, schema: {type: boolean}}}]", "x-spdk-params must be one of none, object, either"},
		"opens instead":    {"schemas: {A: {type: boolean, x-spdk-opens: {to: any-host, if: [true], instead: true}}}", "the value of instead also opens"},
		"bad kind":         {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [], result: {name: r, schema: {type: boolean}}, errors: [{code: -1, message: X, x-spdk-kind: odd}]}]", "unknown x-spdk-kind"},
		"unexplained -1":   {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [], result: {name: r, schema: {type: boolean}}, errors: [{code: -1, message: X}]}]", "x-spdk-kind is missing"},
		"late required":    {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, summary: P., schema: {type: integer}}, {name: q, required: true, summary: Q., schema: {type: integer}}], result: {name: r, schema: {type: boolean}}}]", "comes after an optional one"},
		"names by case":    {"schemas: {AbC: {type: string}, Abc: {type: string}}", "differ by case only"},
		"spelling":         {"schemas: {BdevNvmeHost: {type: string}}", "the schema must be named BdevNVMeHost"},
		"capitals":         {"schemas: {ToyXYZ: {type: string}}", "the schema must be named ToyXyz"},
		"word in two":      {"schemas: {ToyWarmUp: {type: object, properties: {warmup: {type: string}}}}", "spell a word in two ways, Warmup and WarmUp"},
		"bad unit":         {"schemas: {A: {type: integer, x-spdk-unit: furlong}}", "furlong"},
		"bad format":       {"schemas: {A: {type: integer, format: uint7}}", "uint7"},
		"ghost value":      {"schemas: {A: {type: string, enum: [a], x-spdk-enum-since: {b: v26.09}}}", "names no value"},
		"ghost required":   {"schemas: {A: {type: object, properties: {a: {type: string}}, required: [b]}}", "is not described"},
		"ghost in group":   {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [], x-spdk-one-of: [[x, y]], result: {name: r, schema: {type: boolean}}}]", "a group names no parameter"},
		"always required":  {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer, x-spdk-required-until: v24.01}}], result: {name: r, schema: {type: boolean}}}]", "belongs to an optional parameter"},
		"undecoded":        {"methods: [{name: a, summary: A., x-spdk-state: [runtime], x-spdk-decode-error: -32603, params: [], result: {name: r, schema: {type: boolean}}}]", "errors do not list -32603"},
		"ghost relaxed":    {"methods: [{name: a, summary: A., x-spdk-state: [runtime], x-spdk-since: v24.05, x-spdk-relaxed: {since: v24.01}, params: [], result: {name: r, schema: {type: boolean}}}]", "x-spdk-relaxed must name releases"},
		"relaxed back":     {"methods: [{name: a, summary: A., x-spdk-state: [runtime], x-spdk-relaxed: {since: v24.05, until: v24.01}, params: [], result: {name: r, schema: {type: boolean}}}]", "x-spdk-relaxed must name releases"},
		"never required":   {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, summary: P., schema: {type: integer, x-spdk-required-since: v24.01}}], result: {name: r, schema: {type: boolean}}}]", "belongs to a required parameter or member"},
		"optional member":  {"schemas: {A: {type: object, properties: {a: {type: string, x-spdk-required-since: v24.01}}}}", "belongs to a required parameter or member"},
		"stalling change":  {"methods: [{name: a, summary: A., x-spdk-state: [runtime], x-spdk-mutates: true, x-spdk-stalls: true, params: [], result: {name: r, schema: {type: boolean}}}]", "x-spdk-stalls belongs to"},
		"ghost reads":      {"methods: [{name: a, summary: A., x-spdk-state: [runtime], x-spdk-mutates: true, x-spdk-reads-if: {p: [x]}, params: [], result: {name: r, schema: {type: boolean}}}]", "x-spdk-reads-if must name"},
		"ghost forerunner": {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, summary: P., schema: {type: integer, x-spdk-replaces: {name: q}}}], result: {name: r, schema: {type: boolean}}}]", "names no parameter"},
		"rpc.py ghost":     {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: 1, q: --q}, result: {name: r, schema: {type: boolean}}}]", "x-spdk-rpcpy names no parameter"},
		"rpc.py member":    {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: 1, p.q: --q}, result: {name: r, schema: {type: boolean}}}]", "x-spdk-rpcpy names no member"},
		"rpc.py lacks":     {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {}, result: {name: r, schema: {type: boolean}}}]", "the required parameter p has no word"},
		"rpc.py gap":       {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: 2}, result: {name: r, schema: {type: boolean}}}]", "no value has position 1"},
		"rpc.py twice":     {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: [{option: --p}, {option: --q, since: v24.05}]}, result: {name: r, schema: {type: boolean}}}]", "x-spdk-rpcpy has two forms of p for v24.05"},
		"rpc.py never":     {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, summary: P., schema: {type: boolean}}], x-spdk-rpcpy: {p: {set: --p, since: v24.05, until: v24.01}}, result: {name: r, schema: {type: boolean}}}]", "no release has the word of p"},
		"rpc.py release":   {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: {option: --p, until: v24.01}}, result: {name: r, schema: {type: boolean}}}]", "x-spdk-rpcpy at v99.12: the required parameter p has no word"},
		"rpc.py option":    {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: pp}, result: {name: r, schema: {type: boolean}}}]", "is not an option"},
		"rpc.py dash":      {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: --p_q}, result: {name: r, schema: {type: boolean}}}]", "replaces _"},
		"rpc.py both":      {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: {position: 1, option: --p}}, result: {name: r, schema: {type: boolean}}}]", "must have a position, an option, or flags"},
		"rpc.py flag":      {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: {set: --p}}, result: {name: r, schema: {type: boolean}}}]", "flags are for booleans"},
		"rpc.py hex":       {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, summary: P., schema: {type: boolean}}], x-spdk-rpcpy: {p: {set: --p, hex: true}}, result: {name: r, schema: {type: boolean}}}]", "hex, only, nonzero-until and mib-of are for integers"},
		"rpc.py list":      {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: q, summary: Q., schema: {type: array, items: {type: object, properties: {x: {type: string}}}}}], x-spdk-rpcpy: {q: --q}, result: {name: r, schema: {type: boolean}}}]", "a list needs the separator"},
		"rpc.py items":     {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: q, summary: Q., schema: {type: array, items: {type: object, properties: {x: {type: string}}}}}], x-spdk-rpcpy: {q: {option: --q, list: space}}, result: {name: r, schema: {type: boolean}}}]", "the items are objects"},
		"rpc.py item":      {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: q, summary: Q., schema: {type: array, items: {type: object, properties: {x: {type: string}}}}}], x-spdk-rpcpy: {q: {option: --q, list: space, item: [x, y]}}, result: {name: r, schema: {type: boolean}}}]", "item names no member"},
		"rpc.py key":       {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: {opt: --p}}, result: {name: r, schema: {type: boolean}}}]", "unknown field"},
		"rpc.py except":    {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy: {p: {option: --p, not-with: z}}, result: {name: r, schema: {type: boolean}}}]", "not-with names no word"},
		"rpc.py of proxy":  {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-served-by: proxy, x-spdk-rpcpy: {p: 1}, result: {name: r, schema: {type: boolean}}}]", "rpc.py does not know this one"},
		"rpc.py fails":     {"methods: [{name: a, summary: A., x-spdk-state: [runtime], params: [{name: p, required: true, summary: P., schema: {type: integer}}], x-spdk-rpcpy-fails: [v24.01], result: {name: r, schema: {type: boolean}}}]", "belongs to a method with x-spdk-rpcpy"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(c.yaml), 0o644))
			err := run(dir, outputs{openrpc: filepath.Join(dir, "o.json"), client: dir})
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.says)
		})
	}
}

func TestGoNamesUseTheRightSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"bdev_lvol_create": "BdevLvolCreate", "size_in_mib": "SizeInMiB", "nqn": "NQN", "rpc_get_methods": "RPCGetMethods",
		"iscsi_create_target_node": "ISCSICreateTargetNode", "nvmf_subsystem_add_ns": "NVMfSubsystemAddNS", "eui64": "EUI64", "4k": "X4k", "r_mbytes_per_sec": "RMbytesPerSec",
		"bdev_nvme_get_io_paths": "BdevNVMeGetIOPaths", "bdev_get_iostat": "BdevGetIOStat", "bdev_ftl_create": "BdevFTLCreate", "INCR_512_FULL_LBA": "Incr512FullLBA", "readonly": "ReadOnly",
	} {
		assert.Equal(t, want, goName(in))
		assert.Equal(t, want, spelt(want))
	}
}

func TestNamesAreSplitIntoWords(t *testing.T) {
	for in, want := range map[string][]string{
		"NVMfSubsystemSetNSANAGroup": {"NVMf", "Subsystem", "Set", "NS", "ANA", "Group"}, "BdevFTLIOStats": {"Bdev", "FTL", "IO", "Stats"}, "BdevIOStatBdev": {"Bdev", "IOStat", "Bdev"},
		"RWIOsPerSec": {"RW", "IOs", "Per", "Sec"}, "IDs": {"IDs"}, "Idle": {"Idle"}, "ToyXYZColour": {"Toy", "XYZ", "Colour"}, "RAID5f": {"RAID5f"}, "XYZ": {"XYZ"}, "": nil,
	} {
		assert.Equal(t, want, wordsOf(in))
	}
}
