#!/usr/bin/env bash
# packaging/tarball/build.sh [--arch ARCH] [FOLDER]: quire-VERSION-linux-ARCH.tar.zst with its checksum and
# SBOM, in build/tarball or FOLDER; ARCH: this machine's, or aarch64 on another one. SHA256SUMS names the
# files of every architecture in FOLDER. Needs the packages of quickstart.sh, dpkg-dev and zstd, for another
# architecture also those of packaging/arm64/sysroot.sh.
#
# The same sources give the same bytes in any folder and at any time: all times are SOURCE_DATE_EPOCH, by
# default that of the last commit. With QUIRE_MINISIGN_KEY=FILE the list of checksums is signed.
set -euo pipefail
machine=$(uname -m)
if [ "${1:-}" = --arch ]; then machine=${2:?usage: build.sh [--arch ARCH] [FOLDER]}; shift 2; fi
cd "$(dirname "$0")/../.."
out=$(mkdir -p "${1:-build/tarball}" && cd "${1:-build/tarball}" && pwd)
export LC_ALL=C TZ=UTC
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}
umask 022

version=$(sed -n 's/^project(quire VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=quire-$version-linux-$machine
build=$(packaging/portable/build.sh --arch "$machine")
sbom=(--libraries "${QUIRE_PORTABLE_FOLDER:-build}/$(basename "$build")-libraries/sources.txt")
[ "$machine" = "$(uname -m)" ] || sbom+=(--sysroot "${QUIRE_ARM64_SYSROOT:-build/arm64-sysroot}")

# The package's files, below one folder; what belongs to /etc goes to share/quire/etc for install.sh.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/$name
DESTDIR=$stage cmake --install "$build" --prefix "/$name" --strip >/dev/null
mkdir -p "$root/share/quire/systemd"
mv "$stage/etc/quire" "$root/share/quire/etc"
mv "$root/lib/systemd/system"/quire* "$root/share/quire/systemd/"
mv "$root/lib/sysusers.d/quire.conf" "$root/share/quire/systemd/quire.sysusers"
mv "$root/lib/tmpfiles.d/quire.conf" "$root/share/quire/systemd/quire.tmpfiles"
rm -r "$root/lib/systemd" "$root/lib/sysusers.d" "$root/lib/tmpfiles.d" "$root/share/lintian" "$root/share/doc/quire/changelog.gz"
cp LICENSE "$root/share/doc/quire/"
cp packaging/tarball/install.sh "$root/"
chmod 755 "$root/install.sh"
python3 packaging/sbom/make_sbom.py --name "$name" --version "$version" "${sbom[@]}" \
  --licenses "$root/share/doc/quire/licenses" --files "$root" >"$out/$name.spdx.json"
cp "$out/$name.spdx.json" "$root/share/doc/quire/sbom.spdx.json"

packaging/portable/check_symbols.py "$root"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
tar --create --directory "$stage" --sort=name --format=posix --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime \
  --owner=0 --group=0 --numeric-owner --mode=go=u-w "$name" >"$stage/$name.tar"
zstd -q -19 -T1 -f "$stage/$name.tar" -o "$out/$name.tar.zst"
gzip -9nc "$stage/$name.tar" >"$out/$name.tar.gz"  # for systems that have no zstd
cp packaging/tarball/install.sh "$out/install.sh"
(cd "$out" && sha256sum "quire-$version-linux-"*.{tar.zst,tar.gz,spdx.json} >SHA256SUMS)
if [ -n "${QUIRE_MINISIGN_KEY:-}" ]; then
  (cd "$out" && minisign -S -s "$QUIRE_MINISIGN_KEY" -t "quire-$version" -m SHA256SUMS)
fi
ls -l "$out"
