#!/bin/sh
# Checks the packages: two builds give the same bytes, lintian finds no error, and they have the
# files of `make install`, `make install-lab` and `make install-kube`. Usage: scripts/check-deb.sh
# [BINARY], beside BINARY-lab and BINARY-kube. Ends with "N passed, N failed, N skipped".
set -eu
binary=${1:-target/release/tidegate}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for tool in dpkg-deb dpkg-shlibdeps; do
	command -v $tool >/dev/null || {
		echo "skipped: no $tool: apt-get install dpkg-dev"
		echo "0 passed, 0 failed, 1 skipped"
		exit 77
	}
done
passed=0 failed=0 skipped=0

# check WHAT COMMAND...
check() {
	what=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		passed=$((passed + 1))
		return
	fi
	failed=$((failed + 1))
	echo "failed: $what"
	cat "$work/said"
}
build() { BINARY=$binary COMPRESS=none OUT=$1 scripts/deb.sh; }
# Another minute, mask and place: none of it may show.
twice() {
	build "$work/one" && sleep 1 && (umask 077 && build "$work/two") || return 1
	for package in "$work"/one/*.deb; do cmp "$package" "$work/two/${package##*/}" || return 1; done
}
# same_files PACKAGE INSTALL-TARGET
same_files() {
	installed=$work/installed-$1
	make -s "$2" "DESTDIR=$installed" PREFIX=/usr "BINARY=$binary" "LAB=$binary-lab" "KUBE=$binary-kube"
	(cd "$installed" && find . -type f) | sort >"$work/installed.list"
	dpkg-deb -c "$work/one/$1"_*.deb | awk '/^-/ { print $6 }' | sed 's/\.1\.gz$/.1/' | grep -v -e changelog -e lintian | sort >"$work/package.list"
	diff "$work/installed.list" "$work/package.list" && make -s "un$2" "DESTDIR=$installed" PREFIX=/usr && [ -z "$(find "$installed" -type f)" ]
}
# The uncompressed package is this check's own, for its speed.
lints() {
	lintian --allow-root --fail-on error,warning --suppress-tags uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball \
		"$work"/one/*.deb
}
# The symbols belong to the packaged binary, by its build ID.
symbols() {
	COMPRESS=none OUT=$work/symbols scripts/dbgsym.sh tidegate 1-1 "$binary"
	dpkg-deb -x "$work"/symbols/*.deb "$work/tree" && dpkg-deb -x "$work"/one/tidegate_*.deb "$work/tree"
	id=$(readelf -n "$work/tree/usr/bin/tidegate" | sed -n 's/^ *Build ID: //p')
	readelf -S "$work/tree/usr/lib/debug/.build-id/$(printf %.2s "$id")/${id#??}.debug" | grep -q '\.debug_line'
}

check "two builds of one commit differ" twice
check "tidegate and make install differ" same_files tidegate install
check "tidegate-lab and make install-lab differ" same_files tidegate-lab install-lab
check "tidegate-kube and make install-kube differ" same_files tidegate-kube install-kube
check "the package of debug symbols" symbols
if command -v lintian >/dev/null; then
	check "lintian" lints
else
	skipped=1
	echo "skipped: no lintian: apt-get install lintian"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
