# The two commands are `make demo` and `make test`; both do all set-up themselves. `make help` lists
# the rest.

.DEFAULT_GOAL := help
.PHONY: help setup-build setup-demo setup-test build lab demo test lint format incident vm kube kube-node kube-scale kube-cost image chart fuzz soak bench cost results picture release install uninstall install-lab uninstall-lab install-kube uninstall-kube deb clean

PREFIX ?= /usr/local
BINARY ?= target/release/tidegate
LAB ?= target/release/tidegate-lab
KUBE ?= target/release/tidegate-kube
# systemd reads both /usr and /usr/local. Set it for another prefix.
SYSTEMD_UNIT_DIR ?= $(PREFIX)/lib/systemd/system
# What is installed besides the command; the package has the same files.
SHARE = $(DESTDIR)$(PREFIX)/share
# Alert rules, dashboard and the schema of the policy files.
DATA = $(SHARE)/tidegate
DOC = $(SHARE)/doc/tidegate
MAN = $(SHARE)/man/man1
BASH = $(SHARE)/bash-completion/completions
# Debian's zsh reads packages' completions in another folder than an administrator's.
ZSH = $(SHARE)/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
FISH = $(SHARE)/fish/vendor_completions.d
UNIT = $(DESTDIR)$(SYSTEMD_UNIT_DIR)/tidegate.service
SYSUSERS = $(DESTDIR)$(PREFIX)/lib/sysusers.d/tidegate.conf

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup-build: ## Install what the build lacks (as root), or name it
	@scripts/setup.sh build

setup-demo: ## Install what the tour lacks, too
	@scripts/setup.sh demo

setup-test: ## Install what the tests lack, too
	@scripts/setup.sh test

build: setup-build ## Build the tidegate command (target/release/tidegate)
	cargo build --release --package tidegate

lab: setup-build ## Build the tidegate-lab command (target/release/tidegate-lab)
	cargo build --release --package tidegate-lab

demo: setup-demo build lab ## Tour the five mechanisms on this machine, each beside the simplest alternative (as root; 90 s)
	@$(LAB) demo --out target/demo

test: setup-test ## Run every check and test; ends with "N passed, N failed, N skipped"
	@cargo xtask test

lint: setup-test ## Check format, lints, spelling, rules of the tree and licences
	@cargo xtask lint

format: ## Format all sources
	cargo fmt --all
	git ls-files -z '*.c' '*.h' | xargs -0 -r clang-format-19 -i

incident: build lab ## Stage docs/incident.md on this machine: a batch job hurts nginx, is found, tuned and gated (as root; needs nginx; 3 minutes)
	scripts/incident.py

vm: setup-test ## Run the tests in a virtual machine (options: cargo xtask vm --help)
	@cargo xtask vm

kube: setup-test ## Run tidegate-kube against a real Kubernetes control plane (needs go and kubectl; the first time 10 min more)
	@cargo xtask kube

kube-node: setup-test ## The same on a real node: kubelet, containerd and the DaemonSet in an emulated machine (30 min the first time)
	@cargo xtask kube node

kube-scale: setup-test ## 1,000 nodes and 5,000 side pods through an outage, conflicts and refusals (ten minutes; a long test, as soak)
	@cargo xtask kube scale

kube-cost: setup-test ## What Tidegate's processes cost a node with 110 pods, on this machine (as root, eight minutes)
	@cargo xtask kube cost

image: setup-build ## Build the container image for Kubernetes (target/image/tidegate.tar, an OCI archive; no daemon)
	cargo build --release --package tidegate --package tidegate-kube
	@mkdir -p target/image
	@scripts/image.sh target/release target/image/tidegate.tar

chart: setup-build ## Write packaging/kubernetes/*.yaml from the chart (needs helm)
	cargo run --quiet --package tidegate-kube -- crd > packaging/kubernetes/chart/crds/tidegatepolicies.json
	helm lint packaging/kubernetes/chart
	$(TEMPLATE) --set createNamespace=true --include-crds --no-hooks > packaging/kubernetes/tidegate.yaml
	$(TEMPLATE) --api-versions admissionregistration.k8s.io/v1/MutatingAdmissionPolicy --show-only templates/mutating.yaml \
		> packaging/kubernetes/side-cpu.yaml

TEMPLATE = helm template tidegate packaging/kubernetes/chart --kube-version 1.36.0 --namespace tidegate

FUZZ = --fuzz-dir crates/fuzz --features libfuzzer --target-dir target/fuzz --sanitizer none
fuzz: setup-test ## Fuzz the parsers (needs `cargo install cargo-fuzz`; RUNS=10000000 executions each)
	@set -e; for target in $$(cargo fuzz list --fuzz-dir crates/fuzz); do mkdir -p target/fuzz/corpus/$$target; \
		TMPDIR=/dev/shm cargo fuzz run $(FUZZ) $$target target/fuzz/corpus/$$target crates/fuzz/corpus/$$target -- -runs=$(or $(RUNS),10000000); done

results: setup-test lab build ## Repeat the runs of docs/results and write their tables (as root on a quiet machine, with nginx and ffmpeg; 90 min; goes on where it stopped)
	cargo xtask results $(RUN)

picture: build ## Record docs/tour.svg: top and explain as a terminal shows them (as root; needs asciinema and svg-term-cli)
	scripts/picture.sh

soak: setup-test ## The failure contract for hours, as root: over 20,000 faults a round (HOURS=2; 0: a short one)
	scripts/soak.sh

bench: setup-build ## Benchmark the control step and the planner (BASE=REVISION: against that revision)
	@if [ -n "$(BASE)" ]; then set -e; trap 'git worktree remove --force target/bench-base' EXIT; \
		git worktree add --detach target/bench-base "$(BASE)"; \
		CARGO_TARGET_DIR=$(CURDIR)/target cargo bench --manifest-path target/bench-base/Cargo.toml \
			--package tidegate-engine --bench steps -- --save-baseline base; fi
	cargo bench --package tidegate-engine --bench steps -- $(if $(BASE),--baseline base)

cost: build ## Measure what the agent costs beside 1 to 5,000 groups and gates (as root, a quiet machine; 4 minutes)
	CSV=docs/agent-cost.csv scripts/agent-cost.sh

# $(call completions,PROGRAM,NAME)
define completions
	install -d $(BASH) $(ZSH) $(FISH)
	$(1) completions bash > $(BASH)/$(2)
	$(1) completions zsh > $(ZSH)/_$(2)
	$(1) completions fish > $(FISH)/$(2).fish
	chmod 644 $(BASH)/$(2) $(ZSH)/_$(2) $(FISH)/$(2).fish
endef

release: setup-build ## Make packages, image, chart and source of a release in target/release-VERSION (docs/releasing.md)
	cargo build --profile dist --package tidegate --package tidegate-lab --package tidegate-kube
	@scripts/release.sh

install: ## After make build: command, man pages, completions, service, rules, examples (PREFIX=/usr/local, DESTDIR=)
	@test -x $(BINARY) || { echo "tidegate: install: nothing is built; run make build first" >&2; exit 1; }
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/tidegate
	install -d $(MAN) $(dir $(UNIT) $(SYSUSERS)) $(DOC)/examples $(DESTDIR)/etc/tidegate
	$(BINARY) man --out $(MAN)
	chmod 644 $(MAN)/tidegate*.1
	$(call completions,$(BINARY),tidegate)
	sed 's|@PREFIX@|$(PREFIX)|g' packaging/tidegate.service > $(UNIT)
	chmod 644 $(UNIT)
	install -m 644 packaging/tidegate.sysusers $(SYSUSERS)
	install -D -m 644 -t $(DATA) packaging/prometheus/tidegate.rules.yml packaging/grafana/tidegate.json packaging/tidegate.schema.json
	install -m 644 packaging/copyright $(DOC)/copyright
	install -m 644 packaging/examples/* $(DOC)/examples/

uninstall: ## Remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/tidegate $(filter-out $(MAN)/tidegate-lab% $(MAN)/tidegate-kube%,$(wildcard $(MAN)/tidegate*.1))
	rm -f $(BASH)/tidegate $(ZSH)/_tidegate $(FISH)/tidegate.fish $(UNIT) $(SYSUSERS)
	rm -rf $(DOC) $(DATA)
	rmdir $(DESTDIR)/etc/tidegate 2>/dev/null || true

install-lab: ## After make lab: the tidegate-lab command, its man page and completions
	@test -x $(LAB) || { echo "tidegate-lab: install: nothing is built; run make lab first" >&2; exit 1; }
	install -D -m 755 $(LAB) $(DESTDIR)$(PREFIX)/bin/tidegate-lab
	install -d $(MAN)
	$(LAB) man > $(MAN)/tidegate-lab.1
	chmod 644 $(MAN)/tidegate-lab.1
	$(call completions,$(LAB),tidegate-lab)
	install -D -m 644 packaging/copyright $(DOC)-lab/copyright

uninstall-lab: ## Remove what install-lab put there
	rm -f $(DESTDIR)$(PREFIX)/bin/tidegate-lab $(MAN)/tidegate-lab.1 $(BASH)/tidegate-lab $(ZSH)/_tidegate-lab $(FISH)/tidegate-lab.fish
	rm -rf $(DOC)-lab

install-kube: ## After make image: the tidegate-kube command for administrators, its man pages and completions
	@test -x $(KUBE) || { echo "tidegate-kube: install: nothing is built; run make image first" >&2; exit 1; }
	install -D -m 755 $(KUBE) $(DESTDIR)$(PREFIX)/bin/tidegate-kube
	install -d $(MAN)
	$(KUBE) man --out $(MAN)
	chmod 644 $(MAN)/tidegate-kube*.1
	$(call completions,$(KUBE),tidegate-kube)
	install -D -m 644 packaging/copyright $(DOC)-kube/copyright

uninstall-kube: ## Remove what install-kube put there
	rm -f $(DESTDIR)$(PREFIX)/bin/tidegate-kube $(MAN)/tidegate-kube*.1 $(BASH)/tidegate-kube $(ZSH)/_tidegate-kube $(FISH)/tidegate-kube.fish
	rm -rf $(DOC)-kube

deb: setup-build ## Build the Debian packages in target/deb: tidegate, tidegate-lab and tidegate-kube, each with -dbgsym for its debug symbols
	cargo build --profile dist --package tidegate --package tidegate-lab --package tidegate-kube
	@BINARY=target/$(CARGO_BUILD_TARGET)/dist/tidegate DBGSYM=yes scripts/deb.sh

clean: ## Remove build output
	cargo clean
