#!/bin/sh
# A container image of a folder as an OCI tarball, without a daemon.
# Usage: oci.sh ROOT NAME:VERSION ENTRYPOINT OUT. ENTRYPOINT is one word. The same files give the
# same bytes.
set -eu

root=$1 name=$2 entrypoint=$3 out=$4
version=${name##*:}
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
blobs=$work/image/blobs/sha256
mkdir -p "$blobs"

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

archive "$root" "$work/layer"
layer_sum=$(sha256sum "$work/layer" | cut -d ' ' -f 1)
layer=$(blob "$work/layer" application/vnd.oci.image.layer.v1.tar)
printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["%s"],"Labels":{"org.opencontainers.image.version":"%s"}},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" "$entrypoint" "$version" "$layer_sum" >"$work/config"
config=$(blob "$work/config" application/vnd.oci.image.config.v1+json)
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
    "$config" "$layer" >"$work/manifest"
names="\"io.containerd.image.name\":\"$name\",\"org.opencontainers.image.ref.name\":\"$version\""
manifest=$(blob "$work/manifest" application/vnd.oci.image.manifest.v1+json ",\"annotations\":{$names}")
printf '{"schemaVersion":2,"manifests":[%s]}' "$manifest" >"$work/image/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
archive "$work/image" "$out"
