#!/usr/bin/env bash
# packaging/portable/build.sh [--arch ARCH]: portable programs (docs/installing.md) of this machine's
# architecture in build/portable, or of aarch64 from another machine in build/portable-arm64. Prints that
# folder. The first time it needs Debian's archive, for a C library of Debian 11 and the sources of five
# libraries.
set -euo pipefail
cd "$(dirname "$0")/../.."
machine=$(uname -m)
[ "${1:-}" != --arch ] || machine=${2:?usage: build.sh [--arch ARCH]}
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

preset=portable libraries_of=()
if [ "$machine" != "$(uname -m)" ]; then
  [ "$machine" = aarch64 ] || { echo "programs for $machine are built on $machine only" >&2; exit 1; }
  preset=portable-arm64
  export QUIRE_ARM64_SYSROOT=${QUIRE_ARM64_SYSROOT:-$PWD/build/arm64-sysroot}
  packaging/arm64/sysroot.sh "$QUIRE_ARM64_SYSROOT" >&2
  libraries_of=("$QUIRE_ARM64_SYSROOT")
fi
# The folders may be shared by several trees: QUIRE_PORTABLE_FOLDER.
folder=${QUIRE_PORTABLE_FOLDER:-$PWD/build}
packaging/portable/sysroot.sh "$folder/$preset-sysroot" "$machine" >&2
packaging/portable/static_libraries.sh "$folder/$preset-libraries" "${libraries_of[@]}" >&2
mkdir -p build
cmake --preset "$preset" -Wno-dev "-DQUIRE_PORTABLE_SYSROOT=$folder/$preset-sysroot" \
  "-DQUIRE_PORTABLE_LIBRARIES=$folder/$preset-libraries" "${libraries_of[@]/#/-DQUIRE_ARM64_SYSROOT=}" \
  >"build/cmake-$preset.log" || { cat "build/cmake-$preset.log" >&2; exit 1; }
cmake --build --preset "$preset" --parallel >&2
echo "build/$preset"
