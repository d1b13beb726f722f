#!/bin/sh
# The disk of a test node: disk.sh PACKAGES KUBELET KUBECONFIG IMAGES DISK
# PACKAGES is packages.sh's folder, IMAGES a folder of OCI archives. Beside DISK comes DISK.vmlinuz.
set -eu

packages=$1/debs kubelet=$2 kubeconfig=$3 images=$4 disk=$5
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir "$root"
for package in "$packages"/*.deb; do
	case $package in
	*/linux-image-*) dpkg-deb -x "$package" "$work/kernel" ;;
	*/containernetworking-plugins_*) dpkg-deb -x "$package" "$work/cni" ;;
	*) dpkg-deb -x "$package" "$root" ;;
	esac
done
for unused in doc man locale info lintian zoneinfo bug perl5 common-licenses; do rm -rf "$root/usr/share/$unused"; done
rm -rf "$root"/usr/lib/systemd/system-generators "$root/usr/lib/systemd/boot" "$root/usr/lib/udev" "$root/usr/bin/containerd-stress"
mkdir -p "$root"/proc "$root"/sys "$root"/dev "$root"/run "$root"/tmp "$root"/images "$root"/opt/cni/bin "$root"/bed/bin "$root"/bed/modules \
	"$root"/var/lib/kubelet "$root"/var/log
ln -sfn /run "$root/var/run"
for plugin in ptp host-local loopback; do cp "$(find "$work/cni" -type f -name "$plugin")" "$root/opt/cni/bin/"; done
for module in failover net_failover virtio_net overlay veth; do
	xz -dc "$(find "$work/kernel" -name "$module.ko.xz")" >"$root/bed/modules/$module.ko"
done
cp "$work"/kernel/boot/vmlinuz-* "$disk.vmlinuz"
cp /usr/bin/busybox "$root/bed/busybox"
for name in $(busybox --list); do ln -s ../busybox "$root/bed/bin/$name"; done
ln -sf ../../bed/busybox "$root/usr/bin/sh"
cp -r "$here/guest/." "$root"
units=$root/etc/systemd/system
for unit in ldconfig systemd-modules-load systemd-hwdb-update systemd-journal-catalog-update systemd-journal-flush systemd-update-done \
	systemd-update-utmp systemd-machine-id-commit systemd-firstboot systemd-sysusers systemd-networkd getty@tty1 systemd-pcrphase; do
	ln -sf /dev/null "$units/$unit.service"
done
ln -sf node.target "$units/default.target"
printf 'root:x:0:0:root:/:/bin/sh\nmessagebus:x:100:101:bus:/nonexistent:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nutmp:x:43:\nmessagebus:x:101:\nsystemd-journal:x:102:\n' >"$root/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
printf '127.0.0.1 localhost machine\n' >"$root/etc/hosts"
printf 'nameserver 127.0.0.1\n' >"$root/etc/resolv.conf"
echo machine >"$root/etc/hostname"
echo 6d616368696e652d666f722d74657374 >"$root/etc/machine-id"
cp "$kubelet" "$root/usr/bin/kubelet"
cp "$kubeconfig" "$root/etc/kubernetes/kubeconfig"
sed -n "s,.*server: https://10.0.2.2:\([0-9]*\).*,API_PORT=\1,p" "$kubeconfig" >"$root/etc/kubernetes/api"
cp "$images"/*.tar "$root/images/"
rm -f "$disk"
truncate -s 2500M "$disk"
mke2fs -q -t ext4 -d "$root" "$disk"
