#!/bin/sh
# Makes the Debian package: the files of `make install`, and the control files of packaging/debian. The same commit and the same
# binary give the same bytes. Variables: BINARY (target/release/tidegate), VERSION (Cargo.toml's), COMPRESS (xz; none is quick), OUT (target/deb),
# DBGSYM (no; yes also makes the package of debug symbols).
set -eu
umask 022
BINARY=${BINARY:-target/release/tidegate}
OUT=${OUT:-target/deb}
VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-1}
for tool in dpkg-deb dpkg-shlibdeps strip; do
	command -v $tool >/dev/null || { echo "tidegate: deb: $tool: not found; run: sudo apt-get install dpkg-dev" >&2; exit 77; }
done
# Times in the package. A source without its history has those of no moment.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH DPKG_DEB_THREADS_MAX=1

architecture=$(dpkg --print-architecture)
mkdir -p "$OUT"
work=$(mktemp -d "$OUT/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/debian/tidegate
control=$tree/DEBIAN
doc=$tree/usr/share/doc/tidegate

install -d "$control"
make --no-print-directory -s install "DESTDIR=$(realpath "$work")/debian/tidegate" PREFIX=/usr "BINARY=$BINARY"
strip --remove-section=.comment "$tree/usr/bin/tidegate"
gzip -9n "$tree"/usr/share/man/man1/*.1
cat >"$doc/changelog.Debian" <<END
tidegate ($VERSION) unstable; urgency=medium

  * Built from commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown).

 -- $(sed -n 's/^Maintainer: //p' packaging/debian/control)  $(LC_ALL=C date -R -u -d "@$SOURCE_DATE_EPOCH")
END
gzip -9n "$doc/changelog.Debian"
install -D -m 644 packaging/debian/lintian-overrides "$tree/usr/share/lintian/overrides/tidegate"

# dpkg-shlibdeps asks for a source package, with this one in debian/.
printf 'Source: tidegate\n\nPackage: tidegate\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O debian/tidegate/usr/bin/tidegate | sed -n 's/^shlibs:Depends=//p')
size=$(du -k --apparent-size -s "$tree" | cut -f1)

install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$control"
sed -e "s|@VERSION@|$VERSION|; s|@ARCHITECTURE@|$architecture|; s|@INSTALLED_SIZE@|$size|; s|@DEPENDS@|$depends|" \
	packaging/debian/control >"$control/control"
(cd "$tree" && find usr etc -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod 644 "$control/control" "$control/md5sums"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

package=$OUT/tidegate_${VERSION}_$architecture.deb
dpkg-deb --root-owner-group --uniform-compression "-Z${COMPRESS:-xz}" --build "$tree" "$work/package" >/dev/null
mv "$work/package" "$package"
echo "$package"
[ "${DBGSYM:-no}" = no ] || OUT=$OUT scripts/dbgsym.sh tidegate "$VERSION" "$BINARY"
