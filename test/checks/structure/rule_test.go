package structure

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// in returns a function that matches the named packages and all packages below them.
func in(roots ...string) func(pkg) bool {
	return func(p pkg) bool { return within(p.path(), roots...) }
}

func is(root string) func(pkg) bool {
	return func(p pkg) bool { return p.path() == root }
}

// anyOf forbids the named packages and those below them.
func anyOf(roots ...string) func(from, path string) bool {
	return func(_, path string) bool { return within(path, roots...) }
}

// others forbids all packages of this module except the named packages.
func others(allowed ...string) func(from, path string) bool {
	return func(_, path string) bool {
		return within(path, roots...) && !within(path, allowed...)
	}
}

// otherStages forbids a stage from importing the proxy's other packages.
func otherStages(from, path string) bool {
	own := slices.ContainsFunc(stages, func(s string) bool { return within(from, s) && within(path, s) })
	// localsocket and directory are allowed, because they query the kernel, and decide nothing
	// about calls
	return within(path, "proxy", "driver", "cmd") && !own && path != "proxy/localsocket" && path != "proxy/directory"
}

// proxyPackagesBut forbids the proxy's packages except the named ones.
func proxyPackagesBut(allowed ...string) func(from, path string) bool {
	return func(_, path string) bool { return within(path, "proxy") && !within(path, allowed...) }
}

// driverPackagesBut forbids the driver's packages except the named ones.
func driverPackagesBut(allowed ...string) func(from, path string) bool {
	return func(_, path string) bool { return within(path, "driver") && !within(path, allowed...) }
}

// otherHalf forbids connect from importing mount, and mount from importing connect.
func otherHalf(from, path string) bool {
	return within(path, "driver/connect", "driver/mount") && within(from, "driver/connect") != within(path, "driver/connect")
}

// otherService forbids controller from importing node, and node from importing controller.
func otherService(from, path string) bool {
	return within(path, "driver/controller", "driver/node") && within(from, "driver/controller") != within(path, "driver/controller")
}

// broken returns the imports of p that the rule forbids.
func (r rule) broken(p pkg) []string {
	if !r.binds(p) {
		return nil
	}
	looked := p.Imports
	if r.linked {
		looked = slices.Concat(looked, p.Deps)
	}
	if r.tests {
		looked = slices.Concat(looked, p.TestImports, p.XTestImports)
	}
	var found []string
	for _, path := range looked {
		if r.not(p.path(), path) {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Each rule forbids what it must forbid, and allows what it must allow.
func TestImportRulesForbidAndAllow(t *testing.T) {
	for _, c := range []struct {
		who, pkg, imports string
		refused           bool
	}{
		{"rpcschema/jsonrpc imports", "rpcschema/jsonrpc", "github.com/go-json-experiment/json/jsontext", false},
		{"rpcschema/jsonrpc imports", "rpcschema/jsonrpc", "encoding/base64", false},
		{"rpcschema/jsonrpc imports", "rpcschema/jsonrpc", "go.yaml.in/yaml/v3", true},
		{"rpcschema/jsonrpc imports", "rpcschema/jsonrpc", "rpcschema", true},
		{"rpcschema imports neither its client", "rpcschema", "rpcschema/jsonrpc", false},
		{"rpcschema imports neither its client", "rpcschema", "rpcschema/spdkrpc", true},
		{"rpcschema/... imports neither", "rpcschema/spdktest", "proxy", true},
		{"rpcschema/... imports neither", "rpcschema/spdktest", "lvstore/blobstore", true},
		{"lvstore/blobstore imports", "lvstore/blobstore", "io", false},
		{"lvstore/blobstore imports", "lvstore/blobstore", "rpcschema/spdkrpc", true},
		{"lvstore/... imports neither", "lvstore/check", "rpcschema/spdkrpc", false},
		{"lvstore/... imports neither", "lvstore/check", "proxy/target", true},
		{"lvstore/... imports neither", "lvstore/check", "driver/volume", true},
		{"driver does not import", "driver/volume", "lvstore/blobstore", false},
		{"proxy/tenancy/plan", "proxy/tenancy/plan", "proxy/tenancy", true},
		{"proxy/tenancy/plan", "proxy/tenancy/plan", "rpcschema/jsonwalk", false},
		{"proxy/directory", "proxy/directory", "proxy/persist", true},
		{"proxy/directory", "proxy/directory", "rpcschema", true},
		{"proxy/directory", "proxy/directory", "golang.org/x/sys/unix", false},
		{"the stages", "proxy/policy", "rpcschema", false},
		{"the stages", "proxy/policy", "proxy/authn", true},
		{"the stages", "proxy/target", "proxy", true},
		{"the stages", "proxy/target", "proxy/target/pool", false},
		{"the stages", "proxy/target/pool", "proxy/authn", true},
		{"only proxy/service", "proxy/metrics", "proxy", true},
		{"only proxy/service", "proxy/config", "proxy/service", true},
		{"only proxy/service", "proxy/dryrun", "proxy/config", false},
		{"package proxy", "proxy", "proxy/service", true},
		{"package proxy", "proxy", "lvstore/check", true},
		{"package proxy", "proxy", "lvstore/blobstore", false},
		{"package proxy", "proxy", "proxy/dryrun", false},
		{"package proxy", "proxy", "proxy/quiesce", false},
		{"proxy/config", "proxy/config", "proxy", true},
		{"proxy/config", "proxy/config", "proxy/target", true},
		{"proxy/config", "proxy/config", "proxy/authn", false},
		{"proxy/cert and", "proxy/cert", "proxy/config", true},
		{"proxy/cert and", "proxy/clientconn", "proxy", true},
		{"proxy/cert and", "proxy/clientconn", "rpcschema", true},
		{"proxy/cert and", "proxy/clientconn", "net/http", false},
		{"proxy/dryrun", "proxy/dryrun", "proxy", true},
		{"proxy/dryrun", "proxy/dryrun", "proxy/target", true},
		{"proxy/dryrun", "proxy/dryrun", "proxy/config", false},
		{"proxy/auditlog", "proxy/auditlog", "proxy", true},
		{"proxy/auditlog", "proxy/auditlog", "proxy/config", true},
		{"proxy/auditlog", "proxy/auditlog", "proxy/policy", false},
		{"metrics do not depend", "proxy/metrics", "proxy/authn", true},
		{"metrics do not depend", "driver/metrics", "github.com/prometheus/client_golang/prometheus", false},
		{"proxy does not import", "proxy", "proxy/authn", false},
		{"proxy does not import", "proxy/target", "driver/volume", true},
		{"driver does not import", "driver/volume", "proxy/policy", true},
		{"the packages below CSI's services", "driver/connect", "google.golang.org/grpc/codes", true},
		{"the packages below CSI's services", "driver/connect", "k8s.io/utils/exec", false},
		{"connect, mount and luks import neither", "driver/connect", "rpcschema/spdkrpc", true},
		{"controller and node do not", "driver/controller", "driver/node", true},
		{"controller and node do not", "driver/node", "driver/controller", true},
		{"controller and node do not", "driver/node", "driver/request", false},
		{"package driver does not", "driver", "driver/node", true},
		{"package driver does not", "driver", "driver/volume", false},
		{"node does not depend", "driver/node", "driver/connect", false},
		{"node does not depend", "driver/node", "driver/volume", true},
		{"node does not depend", "driver/node", "rpcschema/spdkrpc", true},
		{"class imports", "driver/class", "slices", false},
		{"class imports", "driver/class", "driver/volume", true},
		{"operation does not depend", "driver/operation", "golang.org/x/sync/singleflight", false},
		{"operation does not depend", "driver/operation", "driver/mount", true},
		{"connect and mount do not", "driver/connect", "driver/operation", false},
		{"connect and mount do not", "driver/connect", "driver/mount", true},
		{"connect and mount do not", "driver/mount", "driver/connect", true},
		{"connect and mount do not", "driver/mount", "driver/mount/probe", false},
		{"export does not depend", "driver/export", "driver/volume", true},
		{"export does not depend", "driver/export", "driver/readback", false},
		{"export does not depend", "driver/export", "rpcschema/spdkrpc", false},
		{"volume does not", "driver/volume", "driver/export", false},
		{"monitor depends only", "driver/monitor", "driver/connect", false},
		{"monitor depends only", "driver/monitor", "driver/node", true},
		{"replica imports the standard library", "driver/replica", "slices", false},
		{"replica imports the standard library", "driver/replica", "driver/class", true},
		{"mirror imports only the decisions", "driver/mirror", "driver/replica", false},
		{"mirror imports only the decisions", "driver/mirror", "driver/kubernetes", true},
		{"mirror imports only the decisions", "driver/mirror", "driver/controller", true},
		{"heal imports only mirrors", "driver/heal", "driver/mirror", false},
		{"heal imports only mirrors", "driver/heal", "driver/mount", true},
		{"placement makes no calls", "driver/placement", "driver/class", false},
		{"placement makes no calls", "driver/placement", "driver/volume", true},
		{"placement makes no calls", "driver/placement", "rpcschema/spdkrpc", true},
		{"volume does not", "driver/volume", "driver/placement", true},
		{"only the services", "driver/controller", csiProtobufs + "/lib/go/csi", false},
		{"only the services", "driver/mount", csiProtobufs + "/lib/go/csi", true},
		{"only the services", "test/suites/sanity", csiProtobufs + "/lib/go/csi", false},
		{"only tests, the demo", "test/tools/demo", "rpcschema/spdktest", false},
		{"only tests, the demo", "cmd/spdk-csi", "rpcschema/spdktest", true},
		{"only tests create keys", "proxy", "proxy/authn/authntest", true},
		{"only tests use the driver", "driver/controller", "driver/drivertest", true},
		{"only tests use the driver", "test/suites/sanity", "driver/drivertest", false},
		{"the driver's fixtures", "driver/drivertest", "driver/export", false},
		{"the driver's fixtures", "driver/drivertest", "driver/volume", true},
		{"the driver's fixtures", "driver/drivertest", "driver", true},
		{"only tests record", "proxy/auditlog", "proxy/logtest", true},
		{"no package imports test/", "driver", "test/tools/demo", true},
		{"cmd/...", "cmd/spdk-proxy", "proxy/policy", false},
		{"cmd/...", "cmd/spdk-proxy", "lvstore/check", false},
		{"cmd/...", "cmd/spdk-proxy", "github.com/spf13/cobra", false},
		{"cmd/...", "cmd/spdk-csi", grpc, true},
		{"cmd/spdk-proxy does", "cmd/spdk-proxy", "k8s.io/mount-utils", true},
		{"spdk-schema and", "cmd/spdk-schema", "proxy/target", true},
		{"only tests, the demo", "cmd/spdk-sim", "rpcschema/spdktest", false},
		{"cmd/spdk-csi does", "cmd/spdk-csi", "proxy", true},
	} {
		t.Run(fmt.Sprintf("%s may import %s: %v", c.pkg, c.imports, !c.refused), func(t *testing.T) {
			i := slices.IndexFunc(allRules, func(r rule) bool { return strings.HasPrefix(r.who, c.who) })
			require.GreaterOrEqual(t, i, 0, "no rule begins with %q", c.who)
			p := pkg{ImportPath: module + "/" + c.pkg, Imports: []string{c.imports}}
			assert.Equal(t, c.refused, len(allRules[i].broken(p)) > 0)
		})
	}
}
