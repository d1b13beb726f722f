#!/bin/sh
# A container image of tidegate and tidegate-kube as an OCI tarball, without a daemon.
# Usage: image.sh FOLDER OUT. FOLDER has the two programs. The same programs give the same bytes.
# Load it with `ctr -n k8s.io images import OUT`, `podman load -i OUT` or
# `skopeo copy oci-archive:OUT docker://...`.
set -eu

programs=$1
out=$2
version=$("$programs/tidegate" --version | cut -d ' ' -f 2)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/etc" "$root/tmp" "$root/run/tidegate"

# The programs, and the libraries that their loader would look for.
for program in tidegate tidegate-kube; do
    strip -o "$root/$program" "$programs/$program"
    ldd "$programs/$program" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root${library%/*}"
        cp -L "$library" "$root$library"
    done
done
printf 'root:x:0:0:root:/:/none\n' >"$root/etc/passwd"
# The group whose members the agent serves as root: its number is the manifests' own.
printf 'root:x:0:\ntidegate:x:2000000469:\n' >"$root/etc/group"
find "$root" -type d -exec chmod 755 {} +
chmod 1777 "$root/tmp"
"$(dirname "$0")/oci.sh" "$root" "docker.io/library/tidegate:$version" /tidegate "$out"
printf '%s: tidegate:%s, %s MB\n' "$out" "$version" "$(($(stat -c %s "$out") / 1000000))"
