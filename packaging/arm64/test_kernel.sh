#!/usr/bin/env bash
# packaging/arm64/test_kernel.sh TARBALL.tar.gz [CPU]: boots Linux for arm64 in an emulated machine and runs
# there what the tarball has: the self-test must pass, sandbox included (qemu-user has neither seccomp nor
# Landlock), and the daemon must answer. Landlock of Debian 12's kernel is older than what the sandbox can
# use, which the self-test reports as status 11. Needs qemu-system-arm, cpio, and Debian's archive for a
# kernel, a C library and busybox. CPU: as in qemu-system-aarch64 -cpu.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
tarball=$(realpath "${1:?usage: test_kernel.sh TARBALL.tar.gz [CPU]}")
cpu=${2:-max,pauth-impdef=on}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

suite_apt bookworm "$work/apt" arm64
kernel=$(in_suite "$work/apt" apt-cache depends linux-image-cloud-arm64 | sed -n 's/^ *Depends: //p')
(cd "$work" && in_suite "$work/apt" apt-get download -qq libc6 busybox-static "$kernel")
mkdir -p "$root"/{bin,proc,sys,dev,tmp,quire,models}
dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb | tar -x -C "$work" --wildcards './boot/vmlinuz-*'
dpkg-deb --fsys-tarfile "$work"/busybox-static_*.deb | tar -x -C "$root" ./bin/busybox
dpkg-deb --fsys-tarfile "$work"/libc6_*.deb | tar -x -C "$root" ./lib
tar -x -C "$root/quire" --strip-components=1 -f "$tarball"

cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ip link set lo up
export PATH=/quire/bin:/bin HOME=/tmp OLLAMA_MODELS=/models
uname -srm
quired --selftest
echo "self-test: status $?"
quired >/tmp/log 2>&1 &
tries=0
until quire ready 2>/dev/null; do
  tries=$((tries + 1)); [ $tries -lt 600 ] || break
  sleep 0.2
done
echo "answer: $(quire run quire-demo 'What is a prefix cache?')"
grep -i confined /tmp/log
sync
poweroff -f
INIT
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initrd"

timeout 900 qemu-system-aarch64 -M virt -cpu "$cpu" -smp 2 -m 2G -nographic -no-reboot -nic none -kernel "$work"/boot/vmlinuz-* \
  -initrd "$work/initrd" -append "console=ttyAMA0 quiet panic=-1 lsm=landlock" </dev/null >"$work/console"
tr -d '\r' <"$work/console"
grep -q '^self-test: status \(0\|11\)' "$work/console"
grep -q '^answer: A prefix cache' "$work/console"
if grep 'not filtered\|are allowed\|is allowed\|not available' "$work/console"; then
  echo "the sandbox is not complete" >&2
  exit 1
fi
