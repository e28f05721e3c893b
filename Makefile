# Two targets matter to a newcomer: make demo and make test. The rest is in make help.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty)
# One way of testing, here and in CI. The long packages mostly wait for control planes, so one more
# than there are processors is tested at a time.
TESTFLAGS ?= -race -timeout 30m -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
LDFLAGS := -s -w -X github.com/coredns/coredns/coremain.GitCommit=oooi-$(VERSION)

# Debian packages that are installed when missing, each with what it is there for. The demo
# takes dig, curl, ip and a DHCP client, and of root, who can have one, a node; tests and
# benchmark also a C compiler for the race detector, further clients, and the peers that we are
# measured against.
# python3-venv, asked for below, is for Envoy, which comes as a Python package.
DEMO_PACKAGES := bind9-dnsutils:dig curl:curl iproute2:ip isc-dhcp-client:/usr/sbin/dhclient
TEST_PACKAGES := gcc:gcc libc6-dev:/usr/include/stdlib.h busybox-static:busybox dhcpcd-base:/usr/sbin/dhcpcd \
	dnsperf:dnsperf haproxy:/usr/sbin/haproxy kea-admin:/usr/sbin/perfdhcp kea-dhcp4-server:/usr/sbin/kea-dhcp4 dnsmasq-base:/usr/sbin/dnsmasq \
	systemd:/lib/systemd/systemd-networkd
# What a node of a cluster takes, which the demo and some tests start.
NODE_PACKAGES := buildah:buildah ca-certificates:/etc/ssl/certs/ca-certificates.crt containerd:containerd runc:/usr/sbin/runc \
	containernetworking-plugins:/usr/lib/cni/bridge nftables:/usr/sbin/nft openssl:openssl

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Where the demo runs everything: on a node, on loopback, or what this machine has the means for.
MODE ?= auto

.PHONY: demo
demo: demo-deps build lab ## Set up a VLAN on a real node, and use it; MODE=loopback does without a node
	@$(GO) run ./test/cmd/demo -mode $(MODE)

.PHONY: test
test: deps lab ## Run all unit and integration tests with the race detector
	$(GO) test $(TESTFLAGS) ./...
	cd test/scc && $(GO) test $(TESTFLAGS) -count=1 ./... # not out of the cache, which does not see the plugin that it runs

.PHONY: bench
bench: deps lab ## Measure our daemons against their peers, in one run
	@$(GO) run ./test/bench

.PHONY: lint
lint: bin/golangci-lint ## Run the linters
	bin/golangci-lint run ./...
	cd test/controlplane && CGO_ENABLED=0 $(GO) vet ./... # as it is built, so that nothing is compiled twice
	cd test/scc && $(GO) vet ./...

.PHONY: build
build: bin/coredns bin/xdsd bin/coredhcp bin/kubectl-oooi ## Build the binaries into bin/

# The go command knows what is up to date, so these always ask it.
.PHONY: bin/coredns
bin/coredns:
	@echo "building $@ (a few seconds; about two minutes on a cold cache)"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./corednsbuild

.PHONY: bin/xdsd
bin/xdsd:
	@echo "building $@"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./xdsd

.PHONY: bin/coredhcp
bin/coredhcp:
	@echo "building $@"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./coredhcpbuild

.PHONY: bin/kubectl-oooi
bin/kubectl-oooi:
	@echo "building $@"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./kubectl-oooi

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
		CGO_ENABLED=0 GOARCH=$$arch $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/image/$$arch/coredns ./corednsbuild; \
		CGO_ENABLED=0 GOARCH=$$arch $(GO) build -trimpath -ldflags '-s -w' -o bin/image/$$arch/coredhcp ./coredhcpbuild; \
		CGO_ENABLED=0 GOARCH=$$arch $(GO) build -trimpath -ldflags '-s -w' -o bin/image/$$arch/xdsd ./xdsd; \
	done
ifeq ($(notdir $(IMAGE_TOOL)),docker)
	docker buildx build --platform $(IMAGE_PLATFORMS) --tag $(IMAGE) --file manifests/Containerfile bin/image
else
	if $(IMAGE_TOOL) manifest exists $(IMAGE); then $(IMAGE_TOOL) manifest rm $(IMAGE); fi # an earlier build's, to which this one would be added
	$(IMAGE_TOOL) build --platform $(IMAGE_PLATFORMS) --manifest $(IMAGE) --file manifests/Containerfile bin/image
endif

E2E = $(GO) test $(TESTFLAGS) -timeout 60m -tags e2e ./test/e2e

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

.PHONY: e2e-ingress
e2e-ingress: deps ## Test virtual ingresses with Contour and cert-manager, which it builds (minutes, once)
	$(GO) test $(TESTFLAGS) -tags e2e ./test/e2eingress
	cd test/certmanager && CGO_ENABLED=0 $(GO) vet ./... # as it was just built

.PHONY: lab
lab: ## Build control planes and MetalLB, and fetch Envoy, for tests and demo (minutes, once)
	@$(GO) run ./test/cmd/lab build

bin/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	@echo "building $@ (about three minutes on a cold cache)"
	@$(GO) build -C tools/lint -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: generate
generate: ## Generate deepcopy functions and CRDs anew
	$(GO) generate ./...

.PHONY: golden
golden: ## Write the golden files anew; look at the difference before committing it
	$(GO) test ./internal/model ./xdsd/internal/bootstrap ./xdsd/internal/envoy ./xdsd/internal/ingress ./kubectl-oooi/internal/{convert,setup,cmd,status,resolve,routes,leases,doctor} ./test/manifests ./test/faults -update

# install has the packages $(1) installed, or names those that are missing.
define install
missing=(); for p in $(1); do \
	have=$${p#*:}; [[ -e $$have ]] || command -v "$$have" >/dev/null || missing+=("$${p%%:*}"); \
done; \
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv); \
if (( $${#missing[@]} == 0 )); then exit 0; fi; \
if (( $$(id -u) != 0 )); then echo "missing packages: $${missing[*]}; install them with: sudo make $@" >&2; exit 1; fi; \
echo "installing $${missing[*]}"; \
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${missing[@]}"
endef

.PHONY: demo-deps
demo-deps: ## Install the Debian packages that the demo needs (as root), or name them
	@$(call install,$(DEMO_PACKAGES) $(if $(filter 0,$(shell id -u)),$(NODE_PACKAGES)))

.PHONY: deps
deps: ## Install those that tests and benchmark need as well (as root), or name them
	@$(call install,$(DEMO_PACKAGES) $(TEST_PACKAGES) $(NODE_PACKAGES))

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf bin .lab
