#!/bin/sh
# Makes PACKAGE-dbgsym: the debug symbols of a binary, where gdb, perf and backtraces look for them
# (by build ID).
# Usage: scripts/dbgsym.sh PACKAGE VERSION BINARY. Variables: COMPRESS (xz; none is quick), OUT
# (target/deb), SOURCE_DATE_EPOCH.
set -eu
umask 022
package=$1 version=$2 binary=$3
OUT=${OUT:-target/deb}
architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
id=$(readelf -n "$binary" | sed -n 's/^ *Build ID: //p')
[ -n "$id" ] || { echo "tidegate: dbgsym: $binary: no build ID; link it with --build-id" >&2; exit 1; }
mkdir -p "$OUT"
work=$(mktemp -d "$OUT/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
symbols=$work/tree/usr/lib/debug/.build-id/$(printf %.2s "$id")/${id#??}.debug
install -d "${symbols%/*}" "$work/tree/DEBIAN" "$work/tree/usr/share/doc"
ln -s "$package" "$work/tree/usr/share/doc/$package-dbgsym"
"$(dpkg-architecture -qDEB_HOST_GNU_TYPE)-objcopy" --only-keep-debug --compress-debug-sections "$binary" "$symbols"
chmod 644 "$symbols"
cat >"$work/tree/DEBIAN/control" <<END
Package: $package-dbgsym
Version: $version
Architecture: $architecture
$(grep '^Maintainer: ' "packaging/debian/$package.control")
Installed-Size: $(du -k --apparent-size -s "$work/tree/usr" | cut -f1)
Depends: $package (= $version)
Section: debug
Priority: optional
Auto-Built-Package: debug-symbols
Build-Ids: $id
Description: debug symbols for $package
END
find "$work/tree" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
dpkg-deb --root-owner-group --uniform-compression "-Z${COMPRESS:-xz}" --build "$work/tree" "$work/package" >/dev/null
file=$OUT/$package-dbgsym_${version}_$architecture.deb
mv "$work/package" "$file"
echo "$file"
