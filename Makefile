# Two targets matter to a newcomer: make demo and make test. The rest is in make help.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty)
LDFLAGS := -s -w -X github.com/coredns/coredns/coremain.GitCommit=oooi-$(VERSION)

# Everything but tests with the race detector is compiled with these settings, also what the lab
# builds of other projects, so that the build cache has each package once.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath
# The compiler spends a quarter of its time on garbage collection, unless it may use more memory.
GO_BUILD := GOGC=400 GOMEMLIMIT=4GiB $(GO)

# Debian packages that are installed when missing, each with what it is there for. The demo
# takes dig, curl, ip and a DHCP client, and of root, who can have one, a node; tests and
# benchmark also a C compiler for the race detector, further clients, and the peers that we are
# measured against.
# python3-venv, asked for below, is for Envoy, which comes as a Python package.
DEMO_PACKAGES := bind9-dnsutils:dig curl:curl iproute2:ip isc-dhcp-client:/usr/sbin/dhclient
TEST_PACKAGES := gcc:gcc libc6-dev:/usr/include/stdlib.h busybox-static:busybox dhcpcd-base:/usr/sbin/dhcpcd \
	dnsperf:dnsperf haproxy:/usr/sbin/haproxy kea-admin:/usr/sbin/perfdhcp kea-dhcp4-server:/usr/sbin/kea-dhcp4 dnsmasq-base:/usr/sbin/dnsmasq \
	systemd:/lib/systemd/systemd-networkd network-manager:/usr/sbin/NetworkManager
# What a node of a cluster takes, which the demo and some tests start.
NODE_PACKAGES := buildah:buildah ca-certificates:/etc/ssl/certs/ca-certificates.crt containerd:containerd runc:/usr/sbin/runc \
	containernetworking-plugins:/usr/lib/cni/bridge nftables:/usr/sbin/nft openssl:openssl
# What builds and runs virtual machines.
VM_PACKAGES := mmdebstrap:mmdebstrap qemu-system-x86:qemu-system-x86_64 qemu-utils:qemu-img e2fsprogs:/sbin/mkfs.ext4

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Where the demo runs everything: on a node, on loopback, or what this machine has the means for.
MODE ?= auto

.PHONY: demo
demo: demo-deps build lab ## Deploy a VLAN's services on a real node and use them; MODE=loopback needs no node
	@$(GO_BUILD) build -ldflags '-s -w' -o bin/demo ./test/demo
	@bin/demo -mode $(MODE)

# The race detector is in the daemons' packages and in the daemons that the tests in test/ start. It is
# not in those tests, nor in kubectl oooi, whose tests would take twice the time; make test-long has it
# there too. make lint vets all packages, so go test does not.
TESTFLAGS ?= -timeout 25m
GO_TEST = $(GO) test -vet=off -ldflags='-s -w' $(TESTFLAGS)
RACE_PACKAGES := ./corednsbuild/... ./coredhcpbuild/... ./internal/... ./plugins/... ./xdsd/...
# They start in this order: those that take longest first.
PLAIN_PACKAGES := ./kubectl-oooi/internal/setup $(addprefix ./test/integration/,control apps dhcp vip proxy) ./kubectl-oooi/internal/doctor \
	./test/integration/ingress ./kubectl-oooi/internal/cmd ./test/lab ./test/faults $(addprefix ./test/integration/,dns ovn) \
	./api/... ./kubectl-oooi/... ./manifests/... ./test/...
# Tests mostly wait for control planes, so more packages than there are processors run at a time.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)

.PHONY: test
test: deps lab ## Run all unit and integration tests (ten minutes once everything is compiled)
	@echo "compiling the tests (about five minutes with an empty build cache)"
	@CGO_ENABLED=1 $(GO_BUILD) list -race -test -deps -export $(RACE_PACKAGES) >/dev/null
	@$(GO_BUILD) run ./test/cmd/lab tests
	@OOOI_LAB_BUILT=yes $(MAKE) --no-print-directory -j2 test-race test-plain
	cd test/programs && $(GO_TEST) -count=1 ./scc # the test cache does not see the plugin that this runs

.PHONY: test-race test-plain
test-race:
	CGO_ENABLED=1 $(GO_TEST) -race -p $(PROCESSORS) $(RACE_PACKAGES)
test-plain:
	$(GO_TEST) -p $$(($(PROCESSORS) + 1)) $(PLAIN_PACKAGES)

# Whole matrices, many clusters, long outages: everything that make test and make e2e run in part.
.PHONY: test-long
test-long: deps lab ## Run all tests at full length, on nodes too, as root (hours; before a claim that they cover)
	@$(GO_BUILD) run ./test/cmd/lab tests
	OOOI_LAB_LONG=yes OOOI_LAB_BUILT=yes CGO_ENABLED=1 $(GO_TEST) -race -timeout 60m -p $(PROCESSORS) ./...
	OOOI_LAB_LONG=yes $(MAKE) --no-print-directory e2e

.PHONY: bench
bench: deps lab ## Measure our daemons against their peers, in one run
	@$(GO_BUILD) run ./test/bench

.PHONY: lint
lint: bin/golangci-lint ## Run the linters
	bin/golangci-lint run ./...
	cd test/programs && $(GO) vet ./scc

.PHONY: build
build: bin/coredns bin/xdsd bin/coredhcp bin/kubectl-oooi ## Build the binaries into bin/

# The go command knows what is up to date, so these always ask it.
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

# The image, and what it is built with: buildah, podman or docker. IMAGE_ARCHS="amd64 arm64"
# makes one for several architectures.
IMAGE       ?= ghcr.io/densityops/oooi:latest
IMAGE_ARCHS ?= $(shell $(GO) env GOARCH)
IMAGE_TOOL  ?= $(firstword $(foreach tool,buildah podman docker,$(shell command -v $(tool))))
comma := ,
IMAGE_PLATFORMS = $(subst $() ,$(comma),$(addprefix linux/,$(IMAGE_ARCHS)))
CERTIFICATES ?= /etc/ssl/certs/ca-certificates.crt

.PHONY: krew
krew: ## Build the plugin's archives and krew manifest into dist/: make krew VERSION=v1.2.3
	@$(GO) run ./manifests/krew -version $(VERSION) -out dist

.PHONY: image
image: ## Build the container image (IMAGE, IMAGE_ARCHS, IMAGE_TOOL)
	@[[ "$(IMAGE_TOOL)" ]] || { echo "install buildah, podman or docker" >&2; exit 1; }
	rm -rf bin/image
	mkdir -p bin/image
	cp $(CERTIFICATES) bin/image/ca-certificates.crt
	for arch in $(IMAGE_ARCHS); do \
		GOARCH=$$arch $(GO_BUILD) build -ldflags '$(LDFLAGS)' -o bin/image/$$arch/coredns ./corednsbuild; \
		GOARCH=$$arch $(GO_BUILD) build -ldflags '-s -w' -o bin/image/$$arch/coredhcp ./coredhcpbuild; \
		GOARCH=$$arch $(GO_BUILD) build -ldflags '-s -w' -o bin/image/$$arch/xdsd ./xdsd; \
	done
ifeq ($(notdir $(IMAGE_TOOL)),docker)
	docker buildx build --platform $(IMAGE_PLATFORMS) --tag $(IMAGE) --file manifests/Containerfile bin/image
else
	if $(IMAGE_TOOL) manifest exists $(IMAGE); then $(IMAGE_TOOL) manifest rm $(IMAGE); fi # an earlier build's, to which this one would be added
	$(IMAGE_TOOL) build --platform $(IMAGE_PLATFORMS) --manifest $(IMAGE) --file manifests/Containerfile bin/image
endif

E2E = $(GO_TEST) -timeout 60m -tags e2e ./test/e2e

.PHONY: e2e
e2e: deps lab ## Test setup and what it deploys on real nodes (as root; beside make test)
	@$(MAKE) --no-print-directory -j2 e2e-one-node e2e-two-nodes

# The two mostly wait, each in a network of its own: side by side they take little more than the
# longer one.
.PHONY: e2e-one-node e2e-two-nodes
e2e-one-node:
	$(E2E) -skip 'TwoNodes$$'
e2e-two-nodes:
	$(E2E) -run 'TwoNodes$$'

# Rounds of losses on two nodes, each at length: about 40 minutes.
ROUNDS ?= 3

.PHONY: soak
soak: deps lab ## Lose what can be lost of two nodes, for as long as it may last (hours, not in CI; ROUNDS)
	$(E2E) -timeout 0 -run TestTwoNodes -v -soak $(ROUNDS)

# What TestUpgrade upgrades from: the last release, or while there is none a commit that remembers its version.
UPGRADE_FROM ?= $(shell git describe --tags --abbrev=0 2>/dev/null || echo 0550dad)

.PHONY: upgrade-test
upgrade-test: deps lab ## Upgrade a site on a node from UPGRADE_FROM and go back, while machines use it (as root; minutes)
	OOOI_UPGRADE_FROM=$(UPGRADE_FROM) $(E2E) -count=1 -v -run 'TestUpgrade$$'

.PHONY: e2e-ingress
e2e-ingress: deps ## Test virtual ingresses with Contour and cert-manager, which it builds (minutes, once)
	$(GO_TEST) -tags e2e ./test/e2e/ingress
	cd test/programs/certmanager && $(GO) vet .

.PHONY: vm-test
vm-test: vm-deps lab ## Test with virtual machines in QEMU: cgroups v2, NetworkManager (as root; minutes without KVM)
	$(GO_TEST) -timeout 90m -count=1 -v -tags vm ./test/vm

.PHONY: lab
lab: ## Build control planes and MetalLB, and fetch Envoy, for tests and demo (minutes, once)
	@$(GO_BUILD) run ./test/cmd/lab build

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@echo "building $@ (about three minutes on a cold cache)"
	@$(GO_BUILD) build -C tools/lint -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: generate
generate: ## Generate deepcopy functions and CRDs anew
	$(GO) generate ./...

.PHONY: golden
golden: ## Write the golden files anew; look at the difference before committing it
	$(GO) test ./internal/model ./xdsd/internal/bootstrap ./xdsd/internal/envoy ./xdsd/internal/ingress ./kubectl-oooi/internal/{convert,setup,cmd,status,resolve,routes,leases,doctor} ./test/integration/manifests ./test/faults -update

# install has the packages $(1) installed, or names those that are missing. NetworkManager is for tests that
# start it themselves: where it was not installed, it must not take over the machine's interfaces.
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
demo-deps: ## Install the Debian packages that the demo needs (as root), or name them
	@$(call install,$(DEMO_PACKAGES) $(if $(filter 0,$(shell id -u)),$(NODE_PACKAGES)))

.PHONY: deps
deps: ## Install those that tests and benchmark need as well (as root), or name them
	@$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(NODE_PACKAGES))

.PHONY: vm-deps
vm-deps: ## Install those that make vm-test needs (as root), or name them
	@$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(NODE_PACKAGES) $(VM_PACKAGES))

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf bin .lab
