#!/bin/sh
# A container image of tidegate and tidegate-kube as an OCI tarball, without a daemon: image.sh FOLDER OUT
# FOLDER has the two programs. The same programs give the same bytes. Load it with `ctr -n k8s.io images import OUT`,
# `podman load -i OUT` or `skopeo copy oci-archive:OUT docker://...`.
set -eu

programs=$1
out=$2
version=$("$programs/tidegate" --version | cut -d ' ' -f 2)
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
blobs=$work/image/blobs/sha256
mkdir -p "$root/etc" "$root/tmp" "$root/run/tidegate" "$blobs"

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
printf 'root:x:0:\ntidegate:x:469:\n' >"$root/etc/group"

archive() {
    tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu --directory "$1" --file "$2" .
}
# Moves a file among the blobs and prints its descriptor.
blob() {
    sum=$(sha256sum "$1" | cut -d ' ' -f 1)
    size=$(stat -c %s "$1")
    mv "$1" "$blobs/$sum"
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%s%s}' "$2" "$sum" "$size" "${3:-}"
}

find "$root" -type d -exec chmod 755 {} +
chmod 1777 "$root/tmp"
archive "$root" "$work/layer"
layer_sum=$(sha256sum "$work/layer" | cut -d ' ' -f 1)
layer=$(blob "$work/layer" application/vnd.oci.image.layer.v1.tar)
printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/tidegate"],"Labels":{"org.opencontainers.image.version":"%s"}},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" "$version" "$layer_sum" >"$work/config"
config=$(blob "$work/config" application/vnd.oci.image.config.v1+json)
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
    "$config" "$layer" >"$work/manifest"
name="\"io.containerd.image.name\":\"docker.io/library/tidegate:$version\",\"org.opencontainers.image.ref.name\":\"$version\""
manifest=$(blob "$work/manifest" application/vnd.oci.image.manifest.v1+json ",\"annotations\":{$name}")
printf '{"schemaVersion":2,"manifests":[%s]}' "$manifest" >"$work/image/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
archive "$work/image" "$out"
printf '%s: tidegate:%s, %s MB\n' "$out" "$version" "$(($(stat -c %s "$out") / 1000000))"
