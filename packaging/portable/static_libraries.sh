#!/usr/bin/env bash
# packaging/portable/static_libraries.sh FOLDER [SYSROOT]: static libraries of what Debian 12 has as shared
# libraries only, built from Debian's source packages with the flags of the release preset. libcurl is built
# with HTTP and TLS alone. SYSROOT: for arm64 from another machine, the folder of packaging/arm64/sysroot.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian_packages.sh"
folder=${1:?usage: static_libraries.sh FOLDER [SYSROOT]}
sysroot=${2:+$(cd "$2" && pwd)}
[ ! -e "$folder/complete" ] || exit 0
mkdir -p "$folder/lib"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-O2 -fPIC -DNDEBUG "-ffile-prefix-map=$work=.")
cc=(gcc) cxx=(g++) ar=ar machine=$(gcc -dumpmachine)
if [ -n "$sysroot" ]; then
  machine=aarch64-linux-gnu
  cc=("$machine-gcc-12" "--sysroot=$sysroot") cxx=("$machine-g++-12" "--sysroot=$sysroot") ar=$machine-ar
  flags+=("-ffile-prefix-map=$sysroot=")
  export PKG_CONFIG_DIR='' PKG_CONFIG_SYSROOT_DIR=$sysroot PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$machine/pkgconfig
fi

sources() {
  suite_apt bookworm "$work/apt"
  mkdir "$work/src"
  cd "$work/src"
  in_suite "$work/apt" apt-get source -qq --download-only curl fmtlib highway prometheus-cpp spdlog
  local description
  : >"$folder/sources.txt"
  for description in *.dsc; do
    dpkg-source --no-check -x "$description" "${description%%_*}" >/dev/null
    awk '/^Source:/ {name = $2} /^Version:/ {print name, $2; exit}' "$description" >>"$folder/sources.txt"
  done
}

# archive NAME FLAG... -- SOURCE...: one static library of C++ sources.
archive() {
  local name=$1 extra=() source objects
  shift
  while [ "$1" != -- ]; do extra+=("$1"); shift; done
  shift
  objects=$work/objects-$name
  mkdir "$objects"
  for source in "$@"; do
    "${cxx[@]}" -std=c++17 "${flags[@]}" "${extra[@]}" -c "$source" -o "$objects/$(basename "$source").o"
  done
  "$ar" crD "$folder/lib/lib$name.a" "$objects"/*.o
}

build_curl() {
  cd "$work/src/curl"
  ./configure CC="${cc[*]}" AR="$ar" CFLAGS="${flags[*]}" --build="$(gcc -dumpmachine)" --host="$machine" \
    --disable-shared --enable-static --with-openssl \
    --without-{zlib,brotli,zstd,libpsl,libidn2,librtmp,libssh,libssh2,nghttp2,gssapi,libgsasl,ca-bundle,ca-path} \
    --disable-{ftp,file,ldap,ldaps,rtsp,dict,telnet,tftp,pop3,imap,smb,smtp,gopher,mqtt,manual,ntlm,ntlm-wb} \
    --disable-{docs,libcurl-option,alt-svc,hsts,cookies,dependency-tracking,dnsshuffle,doh,netrc,progress-meter,tls-srp} >configure.out
  make -s -C lib -j2
  cp lib/.libs/libcurl.a "$folder/lib/"
}

sources
cd "$work/src"
archive fmt -- fmtlib/src/format.cc fmtlib/src/os.cc
archive spdlog -Ispdlog/include -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL -- spdlog/src/*.cpp
archive hwy -Ihighway -- highway/hwy/{aligned_allocator,per_target,print,targets}.cc
archive prometheus-cpp-core -Iprometheus-cpp/core/include -- prometheus-cpp/core/src/*.cc prometheus-cpp/core/src/detail/*.cc
build_curl
touch "$folder/complete"
