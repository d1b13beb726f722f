#!/bin/sh
# Boots an emulated arm64 machine with an arm64 tidegate: side work gets the idle class and a quota,
# BPF senses, status answers, and the sched_ext engine starts and stops. Usage:
# scripts/arm64-boot.sh KERNEL.deb BUSYBOX.deb, the arm64 packages linux-image-*-cloud-arm64 or
# linux-binary-* (with sched_ext) and busybox-static. Variable: BINARY
# (target/aarch64-unknown-linux-gnu/dist/tidegate).
set -eu
BINARY=${BINARY:-target/aarch64-unknown-linux-gnu/dist/tidegate}
[ $# = 2 ] || { echo "tidegate: arm64-boot: two packages are needed: scripts/arm64-boot.sh KERNEL.deb BUSYBOX.deb" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
dpkg-deb -x "$1" "$work"
dpkg-deb -x "$2" "$work"
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/run" "$root/tmp"
cp "$work/usr/bin/busybox" "$root/bin"
aarch64-linux-gnu-strip -o "$root/bin/tidegate" "$BINARY"
/lib/ld-linux-aarch64.so.1 --list "$BINARY" | grep -o '/[^ ]*' | while read -r library; do
	install -D "$library" "$root$library"
done
cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# soon COMMAND...: tries it every half second, 120 times.
soon() {
	for try in $(seq 120); do
		"$@" && echo "ok: $*" && return
		sleep 0.5
	done
	echo "failed: $*"
	poweroff -f
}
side=/sys/fs/cgroup/tidegate-side
tidegate run --side --headroom 30% -- sleep 1000 &
soon grep -qsx 1 $side/cpu.idle
soon grep -qs '^[0-9]' $side/cpu.max
soon sh -c 'tidegate status | grep "Sensing: bpf"'
kill $!
tidegate agent stop
soon [ ! -e $side ]
tidegate agent run --engine sched_ext &
soon grep -qsx enabled /sys/kernel/sched_ext/state
tidegate status
tidegate agent stop
soon grep -qsx disabled /sys/kernel/sched_ext/state
echo "arm64-boot: passed"
poweroff -f
END
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initrd"
timeout 600 qemu-system-aarch64 -machine virt -cpu cortex-a72 -smp 2 -m 768 -nodefaults -display none -no-reboot -serial stdio \
	-kernel "$(find "$work" -name 'vmlinuz*')" -initrd "$work/initrd" -append "console=ttyAMA0 loglevel=3 panic=-1" | tee "$work/console"
grep -q "^arm64-boot: passed" "$work/console"
