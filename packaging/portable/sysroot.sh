#!/usr/bin/env bash
# packaging/portable/sysroot.sh FOLDER [MACHINE]: the C library of Debian 11 (glibc 2.31) to link against, so
# that programs run on every distribution with that version or a newer one. MACHINE: x86_64 or aarch64, by
# default this one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian_packages.sh"
folder=${1:?usage: sysroot.sh FOLDER [MACHINE]}
architecture=$(debian_architecture "${2:-$(uname -m)}")
[ ! -e "$folder/complete" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
suite_apt bullseye "$work/apt" "$architecture"
mkdir -p "$work/debs" "$folder"
(cd "$work/debs" && in_suite "$work/apt" apt-get download -qq libc6 libc6-dev libcrypt1 libcrypt-dev)
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$folder"; done
relative_links "$folder"
touch "$folder/complete"
