#!/usr/bin/env bash
# packaging/portable/packages.sh [--arch ARCH] [FOLDER]: the .deb and the .rpm of the portable programs, from
# one definition (packaging/CMakeLists.txt), in build/packages or FOLDER; ARCH: this machine's, or aarch64 on
# another one. Needs what packaging/tarball/build.sh needs, rpm for the .rpm, and lintian to check the .deb: a
# warning fails.
#
# The same programs give the same packages: all times are SOURCE_DATE_EPOCH, by default that of the last
# commit.
set -euo pipefail
machine=$(uname -m)
if [ "${1:-}" = --arch ]; then machine=${2:?usage: packages.sh [--arch ARCH] [FOLDER]}; shift 2; fi
cd "$(dirname "$0")/../.."
out=$(mkdir -p "${1:-build/packages}" && cd "${1:-build/packages}" && pwd)
export LC_ALL=C TZ=UTC
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}
umask 022

build=$(packaging/portable/build.sh --arch "$machine")
packaging/portable/check_symbols.py "$build/bin"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
generators=(DEB)
if command -v rpmbuild >/dev/null; then generators+=(RPM); else echo "there is no rpmbuild: no .rpm is made"; fi
for generator in "${generators[@]}"; do
  cpack -G "$generator" --config "$build/CPackConfig.cmake" -B "$work" >"$work/log" || { cat "$work/log" >&2; exit 1; }
done
if command -v lintian >/dev/null; then
  lintian --fail-on error,warning "$work"/*.deb
  echo "lintian: no error, no warning"
fi
find "$work" -maxdepth 1 \( -name '*.deb' -o -name '*.rpm' \) -exec mv -t "$out" {} +
ls -l "$out"
