#!/bin/sh
# The Debian packages of a test node, and the kernel with its modules: packages.sh FOLDER
# systemd and libraries of stable, containerd and runc of unstable (kubelet wants newer ones than
# stable has), a kernel of backports.
set -eu

folder=$1
kernel=linux-image-6.18.15+deb13-cloud-amd64
[ ! -e "$folder/complete" ] || exit 0
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/debs"
folder=$(cd "$folder" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${TIDEGATE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
printf 'Types: deb\nURIs: %s\nSuites: trixie trixie-backports sid\nComponents: main\nArchitectures: amd64\nSigned-By: %s\n' \
	"$mirror" "$keyring" >"$folder/apt/debian.sources"
: >"$folder/apt/status"
cat >"$folder/apt/apt.conf" <<END
#clear APT::Update;
Dir::Etc::SourceList "$folder/apt/debian.sources"; Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$folder/apt/lists"; Dir::State::status "$folder/apt/status"; Dir::Cache "$folder/apt/cache";
APT::Architecture "amd64"; APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "2";
END
private() { program=$1 && shift && "$program" -c "$folder/apt/apt.conf" "$@"; }
private apt-get -q update
cd "$folder/debs"
wanted=$(private apt-get install -t trixie --print-uris -qq -y --no-install-recommends \
	systemd dbus base-files mount util-linux kmod libseccomp2 libc-bin | sed -n "s/^'[^']*' \([^_]*\)_\([^_]*\)_.*/\1=\2/p" | sed 's/%3a/:/')
# shellcheck disable=SC2086
private apt-get -q download $wanted containerd/sid runc/sid containernetworking-plugins/sid "$kernel"
touch "$folder/complete"
