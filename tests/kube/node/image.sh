#!/bin/sh
# The images of a test node's pods: image.sh VMTOOL FOLDER
# `localhost/work:1` has busybox and vmtool, `localhost/pause:1` waits.
set -eu

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/tmp"
cp /usr/bin/busybox "$1" "$root/bin/"
for name in $(busybox --list); do [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"; done
printf '#!/bin/sh\nexec sleep 1000000000\n' >"$root/wait"
find "$root" -type d -exec chmod 755 {} +
chmod 755 "$root/wait" "$root/bin/vmtool"
for name in work pause; do
	"$(dirname "$0")/../../../scripts/oci.sh" "$root" "localhost/$name:1" /wait "$2/$name.tar"
done
