#!/usr/bin/env bash
# packaging/tarball/test_reproducible.sh [ARCH]: builds the tarball of the last commit in two folders of
# different names, the second one without the compiler cache, and compares the bytes. Takes as long as one or
# two cold builds. The C library and the static libraries are those that build/ has.
set -euo pipefail
machine=${1:-$(uname -m)}
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export QUIRE_PORTABLE_FOLDER=$PWD/build QUIRE_ARM64_SYSROOT=$PWD/build/arm64-sysroot
places=(first a/second/place)
for place in "${places[@]}"; do  # both before the first build, so that they have the same commit
  mkdir -p "$work/$(dirname "$place")"
  git clone -q . "$work/$place"
done
for place in "${places[@]}"; do
  "$work/$place/packaging/tarball/build.sh" --arch "$machine" "$work/out-${place##*/}" >/dev/null
  export CCACHE_DISABLE=1
done
different=0
for name in $(cd "$work" && find out-first out-place -type f -printf '%f\n' | sort -u); do
  if cmp "$work/out-first/$name" "$work/out-place/$name"; then
    echo "equal: $name $(sha256sum <"$work/out-first/$name" | cut -c1-16)"
  else
    echo "FAIL: $name differs"
    different=1
  fi
done
exit $different
