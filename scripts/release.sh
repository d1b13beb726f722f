#!/bin/sh
# Makes the files of a release in target/release-VERSION, and SHA256SUMS over them (make release).
# The same commit and the same compiler give the same bytes.
set -eu
umask 022
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
out=target/release-$version
[ -z "$(git status --porcelain)" ] || {
	echo "tidegate: release: the checkout has changes that are not committed; commit them or take them back" >&2
	exit 1
}
grep -q "^## $version" CHANGELOG.md || {
	echo "tidegate: release: CHANGELOG.md has no section $version" >&2
	exit 1
}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf "$out"
mkdir -p "$out"

BINARY=target/dist/tidegate DBGSYM=yes OUT=$out scripts/deb.sh
BINARY=target/dist/tidegate OUT=$out scripts/rpm.sh || [ $? = 77 ]
scripts/image.sh target/dist "$out/tidegate-$version-image.tar"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# packed FOLDER: that folder of the work folder, with the commit's time.
packed() {
	tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$1"
}
if command -v helm >/dev/null; then
	# helm packs with the time of now.
	helm package packaging/kubernetes/chart --destination "$work"
	tar -C "$work" -xzf "$work/tidegate-$version.tgz"
	packed tidegate | gzip -9 -n >"$out/tidegate-$version.tgz"
else
	echo "skipped: no helm, so no package of the chart"
fi

# The source, with every crate that it needs: cargo build --offline --locked.
tree=tidegate-$version
git archive --prefix="$tree/" HEAD | tar -x -C "$work"
mkdir -p "$work/$tree/.cargo"
(cd "$work/$tree" && cargo vendor --locked --versioned-dirs --quiet vendor)
cat >>"$work/$tree/.cargo/config.toml" <<-END

	[source.crates-io]
	replace-with = "vendored"
	[source.vendored]
	directory = "vendor"
END
packed "$tree" | xz -T0 -6 >"$out/$tree-source.tar.xz"

# What each program is made of.
if command -v cargo-cyclonedx >/dev/null; then
	(cd "$work/$tree" && cargo cyclonedx --quiet --format json --spec-version 1.5 --describe binaries --no-build-deps)
	for program in crates/tidegate/tidegate crates/kube/tidegate-kube lab/bench/tidegate-lab; do
		sed "s|$work/$tree/||g" "$work/$tree/${program}_bin.cdx.json" >"$out/${program##*/}-$version.cdx.json"
	done
else
	echo "skipped: no cargo-cyclonedx, so no bills of materials"
fi

(cd "$out" && sha256sum -- * >SHA256SUMS)
cat "$out/SHA256SUMS"
