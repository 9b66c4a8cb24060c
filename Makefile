# Parley. Nothing is needed beforehand but Go (and make): `make test` sees to the rest, or says what it leaves out.
#
#   CI=true    nothing may be left out: what is missing is a failure
#   FUZZTIME   how long `make fuzz` gives each target (30s)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
CHECKS      := inherit,ST1000,ST1016
FUZZTIME    ?= 30s
CI          ?= false

# The tests that hold limits of time or count allocations; the race detector makes them lenient, or leaves them out, so they
# run without it too.
TIMED       := IsDearToCount|IsLinear|AllocatesNothing|LittleMemory|PingsForEver

# Go, the linter's cache and chromium all want a home directory. If there is none that can be written to, one is made.
ifneq ($(shell [ -n "$$HOME" ] && [ -d "$$HOME" ] && [ -w "$$HOME" ] && echo yes),yes)
export HOME := $(shell d="$(CURDIR)/.bin/home"; mkdir -p "$$d" 2>/dev/null && [ -w "$$d" ] && echo "$$d" || mktemp -d)
unexport XDG_CACHE_HOME
unexport XDG_CONFIG_HOME
endif
export PATH := $(PATH):/usr/local/go/bin

# $(call step,name,command) runs a command and says how long it took.
step = @start=$$(date +%s); echo "== $(1)"; { $(2); } || { echo "== $(1): FAILED after $$(($$(date +%s) - start)) s"; exit 1; }; \
	echo "== $(1): $$(($$(date +%s) - start)) s"

# A C compiler with headers is what the race detector asks for.
can_race = printf '\#include <stdlib.h>\n' | $$(go env CC) -E -x c - >/dev/null 2>&1

.PHONY: help build test needs format vet lint timed redis fuzz clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST)

build: ## the server, as ./parley
	go build -trimpath -o parley ./cmd/parley

test: needs format vet lint timed redis ## everything: formatting, vet, the linter, all tests under the race detector
	$(call step,tests,race=; if $(can_race); then race=-race; export CGO_ENABLED=1; fi; CI=$(CI) go test $$race -timeout 25m ./...)

# What the server's tests show of the embedded store, they show of Redis too; and those of several nodes, of a Cluster. Those that
# need Redis anyway are among all tests.
redis: ## the server's tests on Redis
	$(call step,the server on Redis,PARLEY_TEST_STORE=redis go test -timeout 10m -skip 'Redis|Node|Lost|Failover' ./server && \
		PARLEY_TEST_STORE=cluster go test -timeout 10m -run Node ./server)

# Which commands the tests use, from which of Debian's packages, and what is left out without them.
needs: ## installs what the tests need (as root on Debian), or says what to run and what is left out
	@lack() { \
		command -v redis-server >/dev/null 2>&1 || echo redis-server; \
		command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || \
			command -v google-chrome >/dev/null 2>&1 || echo chromium; \
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
	echo; echo "The tests lack something. On Debian or Ubuntu, run:  sudo apt-get install $$missing"; \
	for package in $$missing; do case $$package in \
		redis-server) echo "  without redis-server, the tests of the Redis store fail";; \
		chromium) echo "  without chromium, the tests of the page are left out";; \
		nodejs) echo "  without node, the tests of client.js, and of ai-sdk.v7 and useChat with the real AI SDK, are left out";; \
		npm) echo "  without npm, the tests of ai-sdk.v7 with the real AI SDK, and of accessibility, are left out";; \
		curl) echo "  without curl, the commands that /docs shows are not tried";; \
		gcc) echo "  without gcc, the tests of expiry on Redis fail, and the others run without the race detector";; \
	esac; done; echo; \
	if [ "$(CI)" = true ]; then echo "CI=true: nothing may be left out"; exit 1; fi

format:
	$(call step,gofmt,unformatted=$$(gofmt -l $$(ls -d */)) && if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted"; false; fi)

vet:
	$(call step,go vet,go vet ./...)

lint: ## the pinned linter alone
	$(call step,staticcheck,go run $(STATICCHECK) -checks '$(CHECKS)' ./...)

timed:
	$(call step,limits of time and allocations,go test -run '$(TIMED)' ./conversation/tokens ./server)

fuzz: ## each fuzz target for FUZZTIME
	@grep -rn --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' $$(ls -d */) | sed 's,^\(.*\)/[^/]*:.*func ,\1 ,' | \
	while read -r package target; do \
		echo "== $$package $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "./$$package" </dev/null || exit 1; \
	done

clean: ## removes what was built
	rm -f parley
