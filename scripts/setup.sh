#!/bin/sh
# Sees to it that what the build and the tests need is installed. Debian and Ubuntu names; missing packages are installed
# when we are root, else named exactly. Fast when nothing is missing.
set -eu

# Without these nothing can be built or checked.
NEEDED="clang-19 clang-format-19 libelf-dev zlib1g-dev pkg-config make gcc libc6-dev autoconf automake libtool flex bison
gawk autopoint procps"
# Without these the tests in a virtual machine are skipped, with their reason.
FOR_VM="qemu-system-x86 busybox-static binutils cpio debian-archive-keyring stress-ng"
# Without this the law is not fuzzed, with that reason.
FOR_FUZZ="libclang-rt-19-dev"
# The test of metrics asks by it.
FOR_METRICS="curl"
# Without this the live view is not tried in a terminal.
FOR_TERMINAL="tmux"
# Without this the page in a browser is not tried.
FOR_PAGE="chromium"
# Without these no Debian package is built and checked.
FOR_PACKAGE="dpkg-dev lintian"
# Without this no Prometheus scrapes the metrics. Unpacked and not installed: its package would start a server.
PROMETHEUS=.cache/prometheus

say() {
	echo "tidegate: setup: $*" >&2
}

# The packages of a list that are not installed.
missing() {
	for package in "$@"; do
		status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
		[ "$status" = installed ] || printf '%s ' "$package"
	done
}

# The same where there is no dpkg: by the commands that matter.
missing_commands() {
	for command in "$@"; do
		command -v "$command" >/dev/null 2>&1 || printf '%s ' "$command"
	done
}

if ! command -v cargo >/dev/null 2>&1; then
	say "cargo: not found in PATH; install a Rust toolchain (https://rustup.rs), then run this again"
	exit 1
fi

# The page in a browser draws by a package of npm; without npm it is left out of the build.
if command -v npm >/dev/null 2>&1 && [ ! web/node_modules/.package-lock.json -nt web/package-lock.json ]; then
	npm ci --prefix web --ignore-scripts --no-audit --no-fund --silent ||
		say "npm could not install what web/package-lock.json names; the page in a browser is left out"
fi

if ! command -v dpkg-query >/dev/null 2>&1; then
	lacking=$(missing_commands clang-19 clang-format-19 pkg-config make gcc autoconf automake libtool flex bison gawk autopoint)
	if [ -n "$lacking" ]; then
		say "not a Debian or Ubuntu system, and these commands are missing: $lacking; install what has them, libclang, libelf and zlib"
		exit 1
	fi
	exit 0
fi

# shellcheck disable=SC2086 # lists of words
lacking=$(missing $NEEDED)
# shellcheck disable=SC2086
lacking_tests=$(missing $FOR_VM $FOR_FUZZ $FOR_METRICS $FOR_TERMINAL $FOR_PAGE $FOR_PACKAGE)
[ -n "$lacking$lacking_tests" ] || [ ! -x $PROMETHEUS/usr/bin/prometheus ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	[ -z "$lacking_tests" ] || say "some tests will be skipped; for them: sudo apt-get install -y $lacking_tests"
	[ -n "$lacking" ] || exit 0
	say "packages are missing, and only root can install them; run: sudo apt-get install -y $lacking"
	exit 1
fi

say "installing $lacking$lacking_tests and unpacking prometheus"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || say "apt-get update failed; trying with the package lists that are there"
if [ -n "$lacking" ]; then
	# shellcheck disable=SC2086
	if ! apt-get install -y -qq --no-install-recommends $lacking >/dev/null; then
		say "apt-get could not install: $lacking; see its messages above"
		exit 1
	fi
fi
if [ -n "$lacking_tests" ]; then
	# One that this release does not have must not keep the others away.
	# shellcheck disable=SC2086
	apt-get install -y -qq --no-install-recommends $lacking_tests >/dev/null || for package in $lacking_tests; do
		apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
			say "apt-get could not install: $package; some tests will be skipped"
	done
fi
if [ ! -x $PROMETHEUS/usr/bin/prometheus ]; then
	mkdir -p $PROMETHEUS
	if ! (cd $PROMETHEUS && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb); then
		say "apt-get could not download prometheus; its tests will be skipped"
	fi
fi
