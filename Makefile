# SPDKGate. `make help` lists what can be made.

GO       ?= go
BIN      ?= bin
VERSION  ?= v$(PACKAGE_VERSION)
LDFLAGS   = -s -w -X main.version=$(VERSION)
FUZZTIME ?= 20s

# 1.2.0 of the tag v1.2.0; 1.2.0+3.gabc three commits later; before the first tag, what CHANGELOG.md announces, the date and the
# number of the commit: 1.2.0~20260131.7.gabc, which packages sort before 1.2.0.
PACKAGE_VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null | sed 's/^v//; s/-/+/; s/-/./g' | grep . || echo "$$(sed -n 's/^## \([0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)~$$(git log -1 --format=%cd --date=format:%Y%m%d 2>/dev/null || echo unknown).$$(git rev-list --count HEAD 2>/dev/null || echo 0).g$$(git describe --always --dirty=.dirty --match nothing 2>/dev/null || echo unknown)")

.DEFAULT_GOAL := help
.PHONY: completions console test-browser man html-manual mutate help build kubectl-plugin krew generate test test-long check bench scale soak fuzz demo conformance test-restart test-snapshot test-kernel test-node test-k8s tools clean install uninstall package images image-lock

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## spdk-proxy and spdk-csi, static, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/spdk-proxy ./cmd/spdk-csi

console: ## the console's front end, proxy/console/dist, from its sources and pinned npm packages, without Node; whoever changes them commits it
	cd proxy/console/web && $(GO) run .

kubectl-plugin: ## the kubectl plugin, kubectl-spdkgate, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/kubectl-spdkgate

KREW_PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64

krew: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
krew: ## the kubectl plugin for krew: an archive for each platform, and the manifest with their checksums, into bin/krew/
	rm -rf $(BIN)/krew && mkdir -p $(BIN)/krew
	for p in $(KREW_PLATFORMS); do \
	  CGO_ENABLED=0 GOOS=$${p%-*} GOARCH=$${p#*-} $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/krew/$$p/ ./cmd/kubectl-spdkgate && \
	  cp LICENSE deploy/krew/kubectl_complete-spdkgate $(BIN)/krew/$$p/ && \
	  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$$SOURCE_DATE_EPOCH -C $(BIN)/krew/$$p -c . | gzip -9n >$(BIN)/krew/kubectl-spdkgate-$$p.tar.gz && rm -r $(BIN)/krew/$$p || exit 1; done
	deploy/krew/manifest.sh $(VERSION) $(BIN)/krew >$(BIN)/krew/spdkgate.yaml

demo: tools ## a volume's whole life through HTTPS and CSI, on a simulated target (ARGS=--keep leaves it running)
	@GO=$(GO) ./test/tools/build.sh -o $(BIN)/demo-programs/ ./test/tools/demo ./cmd/spdk-proxy ./cmd/spdk-csi
	@exec $(BIN)/demo-programs/demo $(ARGS) # go run exits with 1 after Ctrl-C

# Each process of the race detector waits for a second when it ends, by default. gotestsum prints a line for each package when that ends.
# Many tests wait more than they compute, so twice as many packages as cores are tested at a time.
TEST = GORACE=atexit_sleep_ms=50 $(GO) tool gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- -p $$((2 * $$(nproc))) -timeout 30m

test: tools ## the tests, but for those of test-long: about 5 minutes on two idle cores (RACE=-race adds the race detector); as root also real mounts on loop devices
	@echo "A line for each package follows. The first one comes when some packages are compiled, which takes minutes only the first time."
	$(TEST) -short $(RACE) ./...

# Tests that begin with testing.Short(). A test compares this list with them, and with the table in CONTRIBUTING.md.
LONG_TESTS    = TestManifestsAreAdmitted TestPackagedCompletions TestManualCommands TestCreateSucceedsWhileOtherTargetsAreDown TestFailingTargetFailsTheCall TestImageBuildCommandSucceeds TestKilledSnapshotLeavesNothingFrozen \
                TestKilledDeletionLeavesNothingFrozen TestKilledGroupSnapshotLeavesNothingFrozen TestKrewPlatformsCanBeBuilt TestDoctorRepairsCrashLeftovers TestPackagesContainAllFiles TestRefusalsChangeNothing TestSanity TestSoak TestCallCostDoesNotGrowWithVolumes
LONG_PACKAGES = ./cmd/spdk-proxy ./deploy ./driver/controller ./driver/luks ./proxy/quiesce ./test/checks/manual ./test/suites/sanity ./test/tools/soak
# Those that are too slow with the race detector.
SLOW_TESTS    = TestCallCostDoesNotGrowWithVolumes TestOperationsSurviveCrashes TestGroupOperationsOnSeveralTargetsSurviveCrashes TestOperationsOnV2609SurviveCrashes TestCSICallsSurviveCrashes TestDetachingSurvivesCrashes TestGroupOperationsSurviveCrashes \
                TestModelViolatesNoInvariant TestModelFindsPlantedMistakes TestModelWithMoreFailuresViolatesNoInvariant TestPairsOfCallsLeaveAConsistentState TestSnapshotReuseSurvivesCrashes TestObjectsSurviveTargetDeathInEachOperation TestRandomOperationsSurviveTargetDeaths
SLOW_PACKAGES = ./driver/controller ./driver/replica ./driver/volume ./test/suites/restart
names         = '^($(subst $(eval ) ,|,$(strip $(1))))$$'

test-long: tools ## the tests that take long, and that test leaves out: see CONTRIBUTING.md
	$(TEST) -race -run $(call names,$(LONG_TESTS)) $(LONG_PACKAGES)
	$(TEST) -run $(call names,$(SLOW_TESTS)) $(SLOW_PACKAGES)

conformance: ## the conformance suite alone; SPDK_SOCK=/path/to/spdk.sock adds a real target
	$(GO) test -count 1 -v ./test/suites/conformance

test-restart: ## real targets that are killed and come back; SPDK_TGT=/path/to/spdk_tgt (SPDK_TGT_ARGS for more arguments)
	$(GO) test -count 1 -v ./test/suites/restart

test-snapshot: ## snapshots of volumes under writes, on a real target; SPDK_TGT=/path/to/spdk_tgt (ARGS="-rounds 30" for fewer, "-tags kernel" for Linux as the host, too)
	$(GO) test -count 1 -timeout 2h -v ./test/suites/snapshot $(ARGS)

test-kernel: ## the connectors, the node plugin and deleted data on a real kernel, in a small VM; SPDK_SOCK=... adds a real target (ARGS=--all: also what takes hours)
	$(GO) test -tags kernel -count 1 -timeout 12h -v ./test/suites/kernel/ $(ARGS)

test-node: tools ## the part of test-kernel that needs no SPDK: spdk-csi --node by CSI calls, with the targets of the VM's kernel
	$(GO) test -tags kernel -count 1 -timeout 2h -v ./test/suites/kernel/ -run 'Plugin/own|TestPowerLoss' $(ARGS)

test-k8s: ## the Helm chart on a real Kubernetes with the real sidecars, as root, in namespaces that leave nothing; the first run builds Kubernetes (ARGS="-run TestPodDataSurvivesThePod", -keep, -logs=DIR, -upstream, -network-policies=KUBE-ROUTER)
	$(GO) test -tags kubernetes -count 1 -timeout $(if $(filter -keep --keep -keep=true,$(ARGS)),0,3h) -v ./test/suites/e2e/ $(ARGS)

test-browser: ## the console in a headless Chromium, on a simulated target with 10,000 volumes; screenshots go to bin/screenshots (ARGS="-run TestVolumesPageHandlesManyVolumes")
	@./test/tools/programs.sh chromium openssl certutil:libnss3-tools
	cd proxy/console/web && $(GO) run . -check && { [ "$$($(GO) env GOOS)/$$($(GO) env GOARCH)" != linux/amd64 ] || $(GO) run . -types; }
	cd test/suites/browser && SCREENSHOTS=$(abspath $(BIN))/screenshots $(GO) test -count 1 -timeout 40m -v . $(ARGS)

check: ## format, vet, staticcheck, generated files, import rules, links in documents
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags kernel ./test/suites/kernel/ ./test/suites/snapshot/
	$(GO) vet -tags kubernetes ./test/suites/e2e/
	cd proxy/console/web && $(GO) vet .
	cd test/suites/browser && $(GO) vet .
	cd deploy/admission && $(GO) vet .
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) test -count 1 ./rpcschema/rpcgen ./test/checks/structure ./test/checks/docs

bench: tools ## calls/s and latency, raw socket against spdk-proxy; SPDK_SOCK=... on a real target. With SPDK_TGT=/path/to/spdk_tgt, also the time to list the changes of a volume of 100 GiB
	$(GO) run ./test/tools/bench $(ARGS)
ifdef SPDK_TGT
	$(GO) test -count 1 -timeout 1h -v -run TestReadTimes ./test/suites/changes
endif

scale: ## one controller with 100 storage servers and 100,000 volumes, simulated (ARGS="-targets 20 -volumes 2000" for less)
	$(GO) run ./test/tools/scale $(ARGS)

soak: ## ten minutes with a target that dies, reloads, slow and hostile clients (ARGS="-for 2m"; SPDK_TGT=/path/to/spdk_tgt for a real one, SPDK_TGT_ARGS for more of its arguments)
	$(GO) run ./test/tools/soak $(ARGS)

mutate: tools ## change one token at a time in a seeded sample, and list what no test minded (ARGS="-n 20 -seed 7 ./driver/...")
	$(GO) run ./test/tools/mutate $(ARGS)

fuzz: ## every fuzz target for FUZZTIME
	@for f in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  list=$$($(GO) test -list '^Fuzz' $$f) || exit 1; \
	  for t in $$(echo "$$list" | grep ^Fuzz); do echo "== $$f $$t"; $(GO) test -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s $$f || exit 1; done; done

generate: ## assemble rpcschema/openrpc.json from its areas, and from that the typed client and the manual of the methods (docs/methods); the reference of spdk-csi (docs/csi-reference.md)
	$(GO) generate ./rpcschema
	$(GO) test -count 1 ./cmd/spdk-csi -run TestReferenceIsCurrent -update

html-manual: ## the manual of SPDK's methods (docs/methods) in HTML, into bin/methods/
	$(GO) run ./rpcschema/rpcgen -areas rpcschema/areas -html $(BIN)/methods

tools: # what the tests and the demo need of the system
	@./test/tools/programs.sh

# What `make install` installs besides the program: from, to, mode. Its units name the program where it is.
SYSCONFDIR ?= /etc
PREFIX     ?= /usr/local
UNITDIR     = $(PREFIX)/lib/systemd/system
UNITS      := spdk-proxy.service spdk-proxy.socket spdk-proxy-grant.path spdk-proxy-grant.service spdk-proxy-keys.socket spdk-proxy-keys@.service
# For several targets on a host.
UNITS      += spdk-proxy@.service spdk-proxy@.socket spdk-proxy-grant@.path spdk-proxy-grant@.service spdk-proxy-keys@.socket

install: ## spdk-proxy as a service (PREFIX, SYSCONFDIR, DESTDIR); a configuration that is there stays
	install -D -m 755 $(BIN)/spdk-proxy $(DESTDIR)$(PREFIX)/bin/spdk-proxy
	for u in $(UNITS); do install -D -m 644 systemd/$$u $(DESTDIR)$(UNITDIR)/$$u && sed -i 's|/usr/bin/spdk-proxy|$(PREFIX)/bin/spdk-proxy|g' $(DESTDIR)$(UNITDIR)/$$u || exit 1; done
	install -D -m 644 systemd/spdk-proxy.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/spdk-proxy.conf
	install -D -m 644 systemd/spdk-proxy.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/spdk-proxy.conf
	install -d -m 750 $(DESTDIR)$(SYSCONFDIR)/spdk-proxy
	install -d -m 700 $(DESTDIR)$(SYSCONFDIR)/spdk-proxy/secrets
	[ -e $(DESTDIR)$(SYSCONFDIR)/spdk-proxy/spdk-proxy.yaml ] || install -m 640 systemd/spdk-proxy.yaml $(DESTDIR)$(SYSCONFDIR)/spdk-proxy/
	[ -n "$(DESTDIR)" ] || { systemd-sysusers spdk-proxy.conf && systemd-tmpfiles --create spdk-proxy.conf && systemctl daemon-reload; }

uninstall: ## what `make install` installed, but for configuration and state
	[ -n "$(DESTDIR)" ] || systemctl disable --now spdk-proxy.socket spdk-proxy.service spdk-proxy-grant.path spdk-proxy-grant.service spdk-proxy-keys.socket
	[ -n "$(DESTDIR)" ] || { systemctl disable spdk-proxy@.service spdk-proxy@.socket; systemctl stop 'spdk-proxy-grant@*.path' 'spdk-proxy@*.socket' 'spdk-proxy@*.service' 'spdk-proxy-grant@*.service' 'spdk-proxy-keys@*.socket'; }
	rm -f $(DESTDIR)$(PREFIX)/bin/spdk-proxy $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	rm -f $(DESTDIR)$(PREFIX)/lib/sysusers.d/spdk-proxy.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/spdk-proxy.conf
	[ -n "$(DESTDIR)" ] || systemctl daemon-reload

package: export PACKAGE_VERSION := $(PACKAGE_VERSION)
package: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
package: export GOARCH ?= $(shell $(GO) env GOARCH)
package: export BIN := $(BIN)
man: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
man: ## a man page for each command of spdk-proxy, made of its --help, into bin/man/
	rm -rf $(BIN)/man && mkdir -p $(BIN)/man
	SPDK_PROXY_USER= $(GO) run -tags man -ldflags '-X main.version=v$(PACKAGE_VERSION)' ./cmd/spdk-proxy man-pages $(BIN)/man
	gzip -9n $(BIN)/man/*.1

completions: ## shell completions of spdk-proxy for bash, zsh and fish, into bin/completions/
	rm -rf $(BIN)/completions && mkdir -p $(BIN)/completions
	for shell in bash zsh fish; do GOARCH= $(GO) run ./cmd/spdk-proxy completion $$shell >$(BIN)/completions/$$shell || exit 1; done

package: ## spdk-proxy as .deb and .rpm, into bin/, instead of older ones (PACKAGE_VERSION, GOARCH)
	rm -f $(BIN)/spdk-proxy_*.deb $(BIN)/spdk-proxy-*.rpm
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=v$(PACKAGE_VERSION)' -o $(BIN)/ ./cmd/spdk-proxy
	$(MAKE) --no-print-directory man completions
	GOARCH= $(GO) build -modfile deploy/package/go.mod -o $(BIN)/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm
	for format in deb rpm; do $(BIN)/nfpm package --config deploy/package/nfpm.yaml --packager $$format --target $(BIN)/ || exit 1; done

images: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
images: ## container images of both programs for amd64 and arm64, and lists of their contents, into bin/images/, without a container engine; the same commit gives the same digests
	$(GO) run ./deploy/image -out $(BIN)/images -version $(VERSION) -revision $$(git describe --always --dirty --abbrev=40 --match nothing)

image-lock: ## deploy/image/packages.lock with Debian's current packages and this compiler
	$(GO) run ./deploy/image -update-lock

clean: ## what was built
	rm -rf $(BIN)
