#!/bin/sh
# Makes the RPM package tidegate: the files of `make install`. The same commit and binary give the
# same bytes.
# Variables: BINARY (target/release/tidegate), OUT (target/rpm).
set -eu
umask 022
BINARY=$(realpath "${BINARY:-target/release/tidegate}")
OUT=${OUT:-target/rpm}
command -v rpmbuild >/dev/null || {
	echo "skipped: no rpmbuild: apt-get install rpm"
	exit 77
}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
mkdir -p "$OUT"
work=$(realpath "$(mktemp -d "$OUT/work.XXXXXX")")
trap 'rm -rf "$work"' EXIT
mkdir "$work/BUILD"
rpmbuild --quiet -bb --define "_topdir $work" --define "version $version" --define "source $PWD" --define "binary $BINARY" \
	--define "_buildhost reproducible" --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
	packaging/rpm/tidegate.spec
for package in "$work"/RPMS/*/*.rpm; do
	mv "$package" "$OUT"
	echo "$OUT/${package##*/}"
done
