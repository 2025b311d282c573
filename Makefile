# SPDKGate. `make help` lists what can be made.

GO       ?= go
BIN      ?= bin
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 20s

.DEFAULT_GOAL := help
.PHONY: help build generate test check bench fuzz demo conformance test-kernel tools clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## spdk-proxy and spdk-csi, static, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/spdk-proxy ./cmd/spdk-csi

demo: tools ## a volume's whole life through HTTPS and CSI, on a simulated target (ARGS=--keep leaves it running)
	@$(GO) run ./test/demo $(ARGS)

test: tools ## all tests, with the race detector; as root also real mounts on loop devices
	$(GO) test -race -timeout 20m ./...

conformance: ## the conformance suite alone; SPDK_SOCK=/path/to/spdk.sock adds a real target
	$(GO) test -count 1 -v ./test/conformance

test-kernel: ## the nvme connector on a real kernel, in a small VM; SPDK_SOCK=... adds a real target
	$(GO) test -tags kernel -count 1 -timeout 30m -v ./test/kernel/

check: ## format, vet, staticcheck, generated files, import rules, links in documents
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags kernel ./test/kernel/
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) test -count 1 ./rpcschema/rpcgen ./test/structure ./test/docs

bench: tools ## calls/s and latency, raw socket against spdk-proxy; SPDK_SOCK=... on a real target
	$(GO) run ./test/bench $(ARGS)

fuzz: ## every fuzz target for FUZZTIME
	@for f in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  for t in $$($(GO) test -list '^Fuzz' $$f | grep ^Fuzz); do echo "== $$f $$t"; $(GO) test -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) $$f || exit 1; done; done

generate: ## assemble rpcschema/openrpc.json from its areas, and the typed client from that
	$(GO) generate ./rpcschema

tools: # what the tests and the demo need of the system
	@./test/tools.sh

clean: ## what was built
	rm -rf $(BIN)
