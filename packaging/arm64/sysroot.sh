#!/usr/bin/env bash
# packaging/arm64/sysroot.sh [FOLDER]: the arm64 libraries of Debian 12 that Quire builds against and runs
# with, in build/arm64-sysroot or FOLDER (600 MB). The preset arm64 builds against it; qemu-aarch64-static -L
# FOLDER runs what was built. Nothing of this machine's own apt and dpkg state changes.
#
# Building needs g++-12-aarch64-linux-gnu and, for what is run while building and testing, qemu-user-static.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/portable/debian_packages.sh
folder=${1:-build/arm64-sysroot}
if [ -e "$folder/complete" ] && [ -e "$folder/packages.txt" ]; then exit 0; fi
packages=(libc6-dev libstdc++6 libgcc-s1 libboost1.81-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libcli11-dev libssl-dev
  libpcre2-dev libutf8proc-dev libsystemd-dev libhwy-dev libedit-dev libcurl4-openssl-dev prometheus-cpp-dev libseccomp-dev
  zlib1g-dev libzstd-dev libpng-dev libjpeg62-turbo-dev libwebp-dev libgtest-dev libgmock-dev)
# What the packages above depend on and programs neither link with nor read.
excluded='^(libboost.*-dev|.*-(bin|perl|doc|common)|perl.*|python3.*|gcc-.*|g\+\+.*|cpp.*|.*san[0-9]+|debconf|dpkg|tar|media-types|krb5.*|comerr-dev|libtirpc.*|libldap.*-dev|libdb.*)_'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$folder"
suite_apt bookworm "$work/apt" arm64
in_suite "$work/apt" apt-get install --download-only -y -qq --no-install-recommends "${packages[@]}" >"$work/apt.out" ||
  { cat "$work/apt.out" >&2; exit 1; }
for package in "$work"/apt/cache/archives/*.deb; do
  name=$(basename "$package")
  [[ ! $name =~ $excluded || $name == libboost1.81-dev_* ]] || continue
  dpkg-deb -x "$package" "$folder"
  dpkg-deb -W --showformat='${Package} ${Version}\n' "$package"  # for the SBOM, as are the licenses
done >"$folder/packages.txt"
rm -rf "$folder"/usr/share/{man,info,locale,lintian} "$folder"/etc
find "$folder/usr/share/doc" -type f ! -name copyright -delete
relative_links "$folder"
touch "$folder/complete"
du -sh "$folder"
