# This Makefile builds and tests Parley. Building needs Go and make. `make test` installs the other commands that the tests need,
# or lists the tests that it skips.
#
#   CI=true     no test may be skipped: a missing command is a failure
#   TESTFLAGS   more flags for go test, for example -count=1, which ignores cached results
#   FUZZTIME    the time that `make fuzz` runs each fuzz target (30s)
#   CHAOS       the time that `make chaos` takes (1h), and CHAOSFLAGS more flags: go run ./cmd/chaos --help
#   BENCHFLAGS  more flags for `make bench`: go run ./cmd/bench --help

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
CHECKS      := inherit,ST1000,ST1016
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
FUZZTIME    ?= 30s
CHAOS       ?= 1h
CHAOSFLAGS  ?=
BENCHFLAGS  ?=
CI          ?= false

# VERSION is the version of a release: the tag. Between tags, it is the tag with the number of later commits. Without tags, it is
# the revision.
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
PLATFORMS   ?= linux/amd64 linux/arm64 darwin/arm64

# By default, a process with the race detector waits a second before it exits, so that the goroutines that still run can race. Our
# tests leave no goroutine behind: goleak checks that in most packages.
GORACE ?= atexit_sleep_ms=0
export GORACE

# `make test` runs go vet on all packages first, so go test does not repeat it.
GOTEST      := go test -vet=off $(TESTFLAGS)

# The tests of cmd/parley mostly wait for processes and a browser, so three parallel tests for each core keep the core busy.
PARALLEL    := $(shell echo $$((3 * $$(nproc 2>/dev/null || echo 2))))

# The suites wait much of the time: two of them keep one core busy. More at once would starve tests that have deadlines.
SUITES      := $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))

# Go, the linter's cache and Chromium need a writable home directory. If $HOME is not writable, these lines create another.
ifneq ($(shell [ -n "$$HOME" ] && [ -d "$$HOME" ] && [ -w "$$HOME" ] && echo yes),yes)
export HOME := $(shell d="$(CURDIR)/.bin/home"; mkdir -p "$$d" 2>/dev/null && [ -w "$$d" ] && echo "$$d" || mktemp -d)
unexport XDG_CACHE_HOME
unexport XDG_CONFIG_HOME
endif
export PATH := $(PATH):/usr/local/go/bin

# $(call step,name,command) runs a command and prints its duration.
step = @start=$$(date +%s); echo "== $(1)"; { $(2); } || { echo "== $(1): FAILED after $$(($$(date +%s) - start)) s"; exit 1; }; \
	echo "== $(1): $$(($$(date +%s) - start)) s"

# The race detector needs a C compiler with headers.
can_race = printf '\#include <stdlib.h>\n' | $$(go env CC) -E -x c - >/dev/null 2>&1

# packages lists the packages that are tested with the race detector. The tests of cmd/parley build the server with the
# race detector instead. The tests of cmd/chaos are a suite of their own. go test starts packages in this order, and
# tests a repeated package once. The slowest packages come first, so that none of them runs alone at the end.
packages = ./server ./store/redis $$(go list ./... | grep -vE '/cmd/parley$$|/cmd/chaos$$|/conversation/window$$')

# The tests of these packages start no goroutine, so the race detector would find nothing. They would take four times as long.
# conversation/tokens has one test that does, which the target race runs.
sequential = ./conversation/window ./conversation/tokens

.PHONY: help build release test test-unit needs format vet lint govulncheck suites counts race commands redis faults chaos bench fuzz clean

help: ## lists the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

build: ## builds the server as ./parley; reuses everything that `go run ./cmd/parley` has compiled
	go build -o parley ./cmd/parley

# The binaries contain no local paths and no symbol table.
release: ## builds binaries for PLATFORMS in dist/, with their SBOM and SHA-256 sums
	rm -rf dist && mkdir dist
	@for platform in $(PLATFORMS); do \
		name=parley-$(VERSION)-$$(echo $$platform | tr / -); echo "== dist/$$name"; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -tags nomsgpack \
			-ldflags '-s -w -X main.release=$(VERSION)' -o dist/$$name ./cmd/parley || exit 1; \
	done
	@for binary in $(CURDIR)/dist/parley-*; do go run -C .ci/sbom . $$binary $(VERSION) > $$binary.cdx.json || exit 1; done
	cd dist && sha256sum parley-* > SHA256SUMS

test: needs format vet lint govulncheck ## runs every check: formatting, vet, linter, known vulnerabilities, all tests, the race detector (minutes)
	$(call step,all tests,$(MAKE) --no-print-directory --output-sync=target -j$(SUITES) suites)

test-unit: format vet ## runs the tests that need no browser, Redis or other process, for use during work (under a minute)
	$(call step,unit tests,$(GOTEST) -short ./...)

# The suites run in parallel, because each suite waits much of the time.
suites: race commands redis counts faults

race:
	$(call step,packages with the race detector,race=; if $(can_race); then race=-race; export CGO_ENABLED=1; fi; \
		CI=$(CI) $(GOTEST) $$race -timeout 25m $(packages))

commands: ## runs the tests of cmd/parley: processes, several nodes, the page in a browser
	$(call step,the command and the page,if $(can_race); then export PARLEY_TEST_RACE=true; fi; \
		CI=$(CI) $(GOTEST) -parallel $(PARALLEL) -timeout 25m ./cmd/parley)

# counts runs the sequential packages, and the tests that count allocations or bytes. These tests run without the race detector,
# because it allocates more.
counts:
	$(call step,allocations and sequential packages,$(GOTEST) $(sequential) && $(GOTEST) -run 'Alloc|Memory' \
		$$(grep -rlE --include='*_test.go' 'AllocsPerRun|ReadMemStats' $$(ls -d */) | xargs -n1 dirname | sort -u | sed 's,^,./,' | \
			grep -vxF "$$(printf '%s\n' $(sequential))"))

# The target race runs the server's tests on the embedded store. The target redis runs them on Redis, and the tests of several
# nodes on a Redis Cluster.
redis: ## runs the server's tests on Redis
	$(call step,the server on Redis,PARLEY_TEST_STORE=redis $(GOTEST) -timeout 25m -skip 'Redis|Node|Lost|Failover' ./server && \
		PARLEY_TEST_STORE=cluster $(GOTEST) -timeout 25m -run Node ./server)

# The faults mostly wait. Six at a time keep a quarter of a core busy.
faults: ## runs each fault of `make chaos` once, in its short form (2 minutes)
	$(call step,servers under faults,CI=$(CI) $(GOTEST) -parallel 6 -timeout 15m ./cmd/chaos)

chaos: ## drives servers through faults for CHAOS (1h), and writes the table of web/guides/reliability.md
	go run ./cmd/chaos --duration $(CHAOS) --table web/guides/reliability.md $(CHAOSFLAGS)

bench: ## measures the server beside the bare pipe, and writes the table and the plots of web/guides/performance.md (20 minutes)
	go run ./cmd/bench --into web/guides/performance.md --growth web/guides --cold $(BENCHFLAGS)

needs: ## installs the commands that the tests need (as root on Debian), or lists them and the skipped tests
	@lack() { \
		command -v redis-server >/dev/null 2>&1 || echo redis-server; \
		command -v chromium-headless-shell >/dev/null 2>&1 || command -v chromium >/dev/null 2>&1 || \
			command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || echo chromium-headless-shell; \
		command -v node >/dev/null 2>&1 || echo nodejs; \
		command -v npm >/dev/null 2>&1 || echo npm; \
		command -v curl >/dev/null 2>&1 || echo curl; \
		command -v gcc >/dev/null 2>&1 && $(can_race) || echo gcc libc6-dev; \
	}; \
	start=$$(date +%s); missing=$$(lack | tr '\n' ' '); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		echo "== installing $$missing"; export DEBIAN_FRONTEND=noninteractive; \
		apt-get install -y -qq --no-install-recommends $$missing >/dev/null 2>&1 || { \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing >/dev/null; } || true; \
		missing=$$(lack | tr '\n' ' '); \
		echo "== installing: $$(($$(date +%s) - start)) s"; \
	fi; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	echo; echo "Some commands that the tests need are missing. On Debian, run:  sudo apt-get install $$missing"; \
	for package in $$missing; do case $$package in \
		redis-server) echo "  without redis-server, the tests of the Redis store fail";; \
		chromium-headless-shell) echo "  without Chromium, the tests of the page are skipped";; \
		nodejs) echo "  without node, the tests of client.js, and of ai-sdk.v7 and useChat with the real AI SDK, are skipped";; \
		npm) echo "  without npm, the tests of ai-sdk.v7 with the real AI SDK, and of accessibility, are skipped";; \
		curl) echo "  without curl, the commands that /docs shows are not run";; \
		gcc) echo "  without gcc, the tests of expiry on Redis fail, and the others run without the race detector";; \
	esac; done; echo; \
	if [ "$(CI)" = true ]; then echo "CI=true: no test may be skipped"; exit 1; fi

format:
	$(call step,gofmt,unformatted=$$(gofmt -l $$(ls -d */)) && if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted"; false; fi)

vet:
	$(call step,go vet,go vet ./...)

# `go run` keeps the linter in Go's build cache. A tool line in go.mod would add its dependencies to ours.
lint: ## runs the pinned linter alone
	$(call step,staticcheck,go run $(STATICCHECK) -checks '$(CHECKS)' ./...)

# The first scan only compares the versions of the modules and of Go with the database of vulnerabilities. That takes a second.
# If the first scan finds a vulnerable version (exit status 3), a second scan fails if the code calls a vulnerable function. If
# the tool or the database cannot be downloaded, nothing is checked: the step prints the error, which matches OFFLINE, and passes.
OFFLINE := fetching vulnerabilities:|dial tcp|module lookup disabled|Forbidden|Not Found|i/o timeout

govulncheck: ## looks for known vulnerabilities in the dependencies and in Go
	$(call step,govulncheck,found=$$(go run $(GOVULNCHECK) -C cmd/parley -scan module 2>&1) || { \
		if echo "$$found" | grep -q 'exit status 3'; then go run $(GOVULNCHECK) ./...; \
		elif echo "$$found" | grep -qE '$(OFFLINE)'; then echo "NOT CHECKED:" $$(echo "$$found" | grep -E '$(OFFLINE)' | head -1); \
		else echo "$$found"; false; fi; })

fuzz: ## runs each fuzz target for FUZZTIME
	@grep -rn --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' $$(ls -d */) | sed 's,^\(.*\)/[^/]*:.*func ,\1 ,' | \
	while read -r package target; do \
		echo "== $$package $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "./$$package" </dev/null || exit 1; \
	done

clean: ## removes the built files
	rm -rf parley dist
