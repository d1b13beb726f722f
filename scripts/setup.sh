#!/bin/sh
# Installs what the build needs, and with the argument `demo` or `test` what the tour or the tests
# need as well. Debian and Ubuntu names.
# Missing packages are installed for root and named for another user. Fast when nothing is missing.
set -eu

BUILD="clang-19 libelf-dev zlib1g-dev pkg-config make gcc libc6-dev"
# The tour leaves out what it lacks.
DEMO="cpulimit"
# Tests that lack one of these are skipped with the reason.
#   the VM: qemu-system-x86 .. stress-ng; metrics: curl; top: tmux; the page: chromium; packages: dpkg-dev, lintian;
#   the tools of scripts/tools.txt: python3-pip
TEST="clang-format-19 procps qemu-system-x86 busybox-static binutils cpio debian-archive-keyring stress-ng
curl tmux chromium dpkg-dev lintian python3-pip $DEMO"
# Unpacked and not installed, because the package would start a server.
PROMETHEUS=.cache/prometheus
# What scripts/tools.txt names: cargo-deny, cargo-nextest, typos.
TOOLS=.cache/tools

say() {
	echo "tidegate: setup: $*" >&2
}

# Prints the packages of a list that are not installed.
missing() {
	for package in "$@"; do
		status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
		[ "$status" = installed ] || printf '%s ' "$package"
	done
}

is_root() {
	[ "$(id -u)" -eq 0 ]
}

update() {
	[ -n "${updated:-}" ] || apt-get update -qq || say "apt-get update failed; trying with the present package lists"
	updated=yes
}

install() {
	update
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The page in a browser draws with a package of npm, and its tests drive a browser with another. A
# build without npm leaves the page out.
page() {
	command -v npm >/dev/null 2>&1 || return 0
	npm ci --prefix web --ignore-scripts --no-audit --no-fund --silent "$@" ||
		say "npm could not install what web/package-lock.json names; the page in a browser is left out"
}

build() {
	if [ "$(uname -s)" != Linux ]; then
		say "$(uname -s): Tidegate needs a Linux kernel; build it on Linux, or in a Linux virtual machine"
		exit 1
	fi
	case $(uname -r) in
	*-Microsoft) say "kernel $(uname -r): WSL 1 has no cgroups; convert the distribution to WSL 2: wsl --set-version NAME 2" ;;
	esac
	if ! command -v cargo >/dev/null 2>&1; then
		say "cargo: not found in PATH; install a Rust toolchain (https://rustup.rs), then run this again"
		exit 1
	fi
	[ web/node_modules/.package-lock.json -nt web/package-lock.json ] || page --omit=dev
	if ! command -v dpkg-query >/dev/null 2>&1; then
		say "not a Debian or Ubuntu system: install what has the files of $BUILD if the build fails"
		return
	fi
	# shellcheck disable=SC2086 # a list of words
	lacking=$(missing $BUILD)
	[ -n "$lacking" ] || return 0
	if ! is_root; then
		say "packages are missing, and only root can install them; run: sudo apt-get install -y $lacking"
		exit 1
	fi
	say "installing $lacking"
	# shellcheck disable=SC2086
	if ! install $lacking; then
		say "apt-get could not install: $lacking; see its messages above"
		exit 1
	fi
}

# Installs packages; the first argument says what happens without them.
wanted() {
	without=$1
	shift
	lacking=$(missing "$@")
	[ -n "$lacking" ] || return 0
	if ! is_root; then
		say "$without; for them: sudo apt-get install -y $lacking"
		return
	fi
	say "installing $lacking"
	# A package that this release does not have must not keep the others away.
	# shellcheck disable=SC2086
	install $lacking || for package in $lacking; do
		install "$package" || say "apt-get could not install: $package; $without"
	done
}

prometheus() {
	[ ! -x $PROMETHEUS/usr/bin/prometheus ] && is_root || return 0
	update
	mkdir -p $PROMETHEUS
	(cd $PROMETHEUS && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) ||
		say "apt-get could not download prometheus; its tests will be skipped"
}

tools() {
	[ ! $TOOLS/bin -nt scripts/tools.txt ] || return 0
	rm -rf $TOOLS
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes --only-binary :all: \
		--target $TOOLS --requirement scripts/tools.txt && touch $TOOLS/bin ||
		say "pip could not install what scripts/tools.txt names; those checks will be skipped"
	# Without this one there are no tests.
	[ -x $TOOLS/bin/cargo-nextest ] || command -v cargo-nextest >/dev/null || cargo install --quiet --locked --root $TOOLS cargo-nextest@0.9.148
}

build
if [ "${1:-}" = demo ] && command -v dpkg-query >/dev/null 2>&1; then
	# shellcheck disable=SC2086 # a list of words
	wanted "parts of the tour will be left out" $DEMO
fi
if [ "${1:-}" = test ]; then
	if command -v dpkg-query >/dev/null 2>&1; then
		# shellcheck disable=SC2086 # a list of words
		wanted "some tests will be skipped" $TEST
		prometheus
	fi
	[ -d web/node_modules/playwright-core ] || page
	tools
fi
