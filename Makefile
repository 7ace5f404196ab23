# make help lists the targets.
GO      ?= go
IMAGE   ?= pi-worker:local
LDFLAGS := -s -w
TOOLS   := -modfile=.ci/tools/go.mod
FUZZTIME ?= 30s
SEED    ?= 1
# Packages where goroutines meet; the same as in .ci/run.
RACE    := ./loop ./subjects ./internal/session ./worker ./client

.DEFAULT_GOAL := help
.PHONY: help build test lint race fuzz bench chaos image nats-image charts integration release sbom vuln readme clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## static binaries in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/pi-worker ./cmd/pi-cli

test: ## all tests
	$(GO) test ./...

lint: ## gofmt, vet and staticcheck; golangci-lint too where it is installed
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) tool $(TOOLS) staticcheck ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run; fi

race: ## tests of the packages where goroutines meet, with the race detector
	CGO_ENABLED=1 $(GO) test -race $(RACE)

fuzz: ## each fuzz test for FUZZTIME (30s)
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

bench: ## all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

chaos: ## everything breaks while workers work, for a minute; SEED=1
	$(GO) run ./internal/chaos -seconds 60 -faults all -seed $(SEED)

image: ## the image from this computer's Go, without a registry; IMAGE=pi-worker:local
	rm -rf dist/image && mkdir -p dist/image/etc/ssl/certs dist/image/tmp && chmod 1777 dist/image/tmp
	CGO_ENABLED=0 GOOS=linux $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o dist/image/ ./cmd/pi-worker ./cmd/pi-cli
	@for f in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do \
	  if [ -e $$f ]; then cp $$f dist/image/etc/ssl/certs/ca-certificates.crt; exit 0; fi; \
	done; echo "no root certificates found: the image will trust no HTTPS endpoint" >&2
	docker build -q -t $(IMAGE) -f Dockerfile.scratch dist/image

nats-image: ## the NATS image of compose.yaml from its Go module, where no registry can be reached
	.ci/nats-image

charts: ## what is under deploy/: the Helm chart, alert rules and dashboard
	.ci/charts

integration: ## tests with containers; needs Docker
	PI_INTEGRATION=required $(GO) test -tags integration -count=1 -timeout 10m ./internal/integration/...

release: ## static binaries for linux, darwin and windows in dist/release; man pages, completions, SBOM, checksums
	.ci/release

sbom: build ## what is linked into bin/, as CycloneDX
	$(GO) run ./.ci/sbom bin/pi-worker bin/pi-cli

readme: ## writes the configuration table of the README anew
	$(GO) test ./config -run TestReadmeTable -update

vuln: ## known vulnerabilities, with the database from its Go module (about 15 minutes cold)
	.ci/vuln

clean: ## removes what the targets made
	rm -rf bin dist
