#!/bin/sh
# Makes the Debian packages tidegate, tidegate-lab and tidegate-kube: the files of `make install`,
# `make install-lab` and `make install-kube`, and the control files of packaging/debian. The same
# commit and the same binaries give the same bytes.
# Variables: BINARY (target/release/tidegate), LAB and KUBE (its name with -lab and -kube; empty: no
# such package), VERSION (Cargo.toml's), COMPRESS (xz; none is quick), OUT (target/deb), DBGSYM (no;
# yes also makes the packages of debug symbols).
set -eu
umask 022
BINARY=${BINARY:-target/release/tidegate}
LAB=${LAB-$BINARY-lab}
KUBE=${KUBE-$BINARY-kube}
OUT=${OUT:-target/deb}
VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-1}
for tool in dpkg-deb dpkg-shlibdeps strip; do
	command -v $tool >/dev/null || { echo "tidegate: deb: $tool: not found; run: sudo apt-get install dpkg-dev" >&2; exit 77; }
done
# The times in the package. A source without its history has 1970.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH DPKG_DEB_THREADS_MAX=1

architecture=$(dpkg-architecture -qDEB_HOST_ARCH)
mkdir -p "$OUT"
work=$(mktemp -d "$OUT/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# package NAME INSTALL-TARGET BINARY
package() {
	name=$1
	tree=$work/debian/$name
	control=$tree/DEBIAN
	doc=$tree/usr/share/doc/$name
	install -d "$control"
	make --no-print-directory -s "$2" "DESTDIR=$(realpath "$work")/debian/$name" PREFIX=/usr "BINARY=$BINARY" "LAB=$LAB" "KUBE=$KUBE"
	"$(dpkg-architecture -qDEB_HOST_GNU_TYPE)-strip" --remove-section=.comment "$tree/usr/bin/$name"
	gzip -9n "$tree"/usr/share/man/man1/*.1
	cat >"$doc/changelog.Debian" <<END
$name ($VERSION) unstable; urgency=medium

  * Built from commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown).

 -- $(sed -n 's/^Maintainer: //p' "packaging/debian/$name.control")  $(LC_ALL=C date -R -u -d "@$SOURCE_DATE_EPOCH")
END
	gzip -9n "$doc/changelog.Debian"
	install -D -m 644 "packaging/debian/$name.lintian-overrides" "$tree/usr/share/lintian/overrides/$name"

	# dpkg-shlibdeps asks for a source package, with this one in debian/.
	printf 'Source: tidegate\n\nPackage: %s\nArchitecture: any\n' "$name" >"$work/debian/control"
	depends=$(cd "$work" && dpkg-shlibdeps -O "debian/$name/usr/bin/$name" | sed -n 's/^shlibs:Depends=//p')
	size=$(du -k --apparent-size -s "$tree" | cut -f1)
	for script in postinst prerm postrm; do
		if [ -f "packaging/debian/$name.$script" ]; then install -m 755 "packaging/debian/$name.$script" "$control/$script"; fi
	done
	sed -e "s|@VERSION@|$VERSION|; s|@ARCHITECTURE@|$architecture|; s|@INSTALLED_SIZE@|$size|; s|@DEPENDS@|$depends|" \
		"packaging/debian/$name.control" >"$control/control"
	(cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
	chmod 644 "$control/control" "$control/md5sums"
	find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

	package=$OUT/${name}_${VERSION}_$architecture.deb
	dpkg-deb --root-owner-group --uniform-compression "-Z${COMPRESS:-xz}" --build "$tree" "$work/package" >/dev/null
	mv "$work/package" "$package"
	echo "$package"
	[ "${DBGSYM:-no}" = no ] || OUT=$OUT scripts/dbgsym.sh "$name" "$VERSION" "$3"
}

package tidegate install "$BINARY"
[ -z "$LAB" ] || package tidegate-lab install-lab "$LAB"
[ -z "$KUBE" ] || package tidegate-kube install-kube "$KUBE"
