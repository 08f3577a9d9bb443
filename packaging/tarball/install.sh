#!/bin/sh
# Installs Quire from its tarball, which must lie beside this script with SHA256SUMS and SHA256SUMS.minisig,
# or below the address FROM.
#
#   ./install.sh                      to /usr/local as root, else to ~/.local
#   ./install.sh --prefix DIR         to another folder
#   ./install.sh --from FROM          FROM: a folder, or an https address that has the files
#   ./install.sh --no-service         without a systemd service
#   ./install.sh --public-key KEY     verify the signature with this minisign key (RW...)
#   ./install.sh --checksum-only      without a signature: for files that you trust already
#   ./install.sh uninstall [--prefix DIR] [--purge]    --purge: models, caches and settings too
#
# Files that were installed are listed in PREFIX/share/quire/installed-files; only these are removed.
set -eu

public_key=${QUIRE_PUBLIC_KEY:-}
action=install prefix='' from='' service=yes checksum_only=no purge=no temporary=''

say() { printf '%s\n' "$*"; }
die() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
cleanup() { [ -z "$temporary" ] || rm -rf "$temporary"; }
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

while [ $# -gt 0 ]; do
  case $1 in
    uninstall) action=uninstall ;;
    --prefix) [ $# -gt 1 ] || die "--prefix needs a folder"; prefix=$2; shift ;;
    --from) [ $# -gt 1 ] || die "--from needs a folder or an address"; from=$2; shift ;;
    --public-key) [ $# -gt 1 ] || die "--public-key needs a key"; public_key=$2; shift ;;
    --no-service) service=no ;;
    --checksum-only) checksum_only=yes ;;
    --purge) purge=yes ;;
    -h | --help) sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
    *) die "unknown argument $1 (see --help)" ;;
  esac
  shift
done

is_root() { [ "$(id -u)" = 0 ]; }
if [ -z "$prefix" ]; then
  if is_root; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
fi
case $prefix in /*) ;; *) prefix=$(pwd)/$prefix ;; esac
list=$prefix/share/quire/installed-files
# The service of the system belongs to an installation that root made in /usr/local; a user has a service of
# his own.
if is_root; then scope=system units=/etc/systemd/system; else scope=user units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user; fi
systemd_runs() {
  if [ "$scope" = system ]; then [ -d /run/systemd/system ]; else systemctl --user show-environment >/dev/null 2>&1; fi
}
manager() { if [ "$scope" = system ]; then systemctl "$@"; else systemctl --user "$@"; fi; }

# ---- fetching and verifying ----

fetch() {  # fetch NAME: into $temporary
  case $from in
    https://* | http://127.0.0.1[:/]* | http://localhost[:/]*)
      if has curl; then curl -fsSL --proto '=https,http' -o "$temporary/$1" "${from%/}/$1"
      elif has wget; then wget -q -O "$temporary/$1" "${from%/}/$1"
      else die "needs curl or wget to fetch $1"; fi ;;
    http://*) die "$from is not encrypted: use https" ;;
    *) cp "$from/$1" "$temporary/$1" ;;
  esac
}

decode64() { if has base64; then base64 -d; else openssl base64 -d -A; fi; }

# Ed25519 by OpenSSL 3, of minisign's format: key and signature are base64 of 2 bytes algorithm, 8 bytes key
# id, and the key or the signature; "ED" signs the BLAKE2b-512 of the file.
verify_with_openssl() {
  printf '%s' "$public_key" | decode64 >"$temporary/key" || die "the public key is not base64"
  sed -n 2p "$temporary/SHA256SUMS.minisig" | decode64 >"$temporary/sig"
  [ "$(wc -c <"$temporary/key")" -eq 42 ] && [ "$(wc -c <"$temporary/sig")" -eq 74 ] || return 1
  [ "$(head -c 2 "$temporary/sig")" = ED ] || return 1
  part() { tail -c "+$2" "$temporary/$1" | head -c "$3" | od -An -tx1; }
  [ "$(part key 3 8)" = "$(part sig 3 8)" ] || return 1
  { printf '\060\052\060\005\006\003\053\145\160\003\041\000'; tail -c 32 "$temporary/key"; } >"$temporary/key.der"
  tail -c 64 "$temporary/sig" >"$temporary/sig.raw"
  openssl dgst -blake2b512 -binary -out "$temporary/hash" "$temporary/SHA256SUMS"
  openssl pkeyutl -verify -pubin -inkey "$temporary/key.der" -keyform DER -rawin -in "$temporary/hash" \
    -sigfile "$temporary/sig.raw" >/dev/null 2>&1
}

verify_signature() {
  if [ "$checksum_only" = yes ]; then say "signature: not checked (--checksum-only)"; return; fi
  [ -n "$public_key" ] || die "no public key: give --public-key KEY, or --checksum-only for files that you trust already"
  fetch SHA256SUMS.minisig || die "there is no signature SHA256SUMS.minisig"
  if has minisign; then
    (cd "$temporary" && minisign -V -q -P "$public_key" -m SHA256SUMS) || die "the signature of SHA256SUMS is wrong"
  elif has openssl && openssl version | grep -q '^OpenSSL [3-9]'; then
    verify_with_openssl || die "the signature of SHA256SUMS is wrong"
  else
    die "needs minisign or OpenSSL 3 to check the signature; --checksum-only goes without"
  fi
  say "signature: good"
}

verify_checksum() {
  sums=$(grep " [ *]*$1\$" "$temporary/SHA256SUMS") || die "SHA256SUMS does not name $1"
  printf '%s\n' "$sums" >"$temporary/sums"
  (cd "$temporary" && sha256sum -c sums >/dev/null 2>&1) || die "the checksum of $1 is wrong"
  say "checksum: good"
}

unpack() {  # sets $tree, the unpacked folder
  machine=$(uname -m)
  [ "$(uname -s)" = Linux ] || die "runs on Linux only"
  case $machine in x86_64 | aarch64) ;; *) die "there is no tarball for $machine" ;; esac
  fetch SHA256SUMS || die "cannot fetch SHA256SUMS"
  verify_signature
  if has zstd; then kind=zst unpacker='zstd -dcq'; else kind=gz unpacker='gzip -dc'; fi
  tarball=$(sed -n "s/.* [ *]*\(quire-[0-9.]*-linux-$machine\.tar\.$kind\)\$/\1/p" "$temporary/SHA256SUMS" | head -n 1)
  [ -n "$tarball" ] || die "SHA256SUMS names no tar.$kind for $machine"
  fetch "$tarball" || die "cannot fetch $tarball"
  verify_checksum "$tarball"
  $unpacker "$temporary/$tarball" | (cd "$temporary" && tar -xf -)
  tree=$temporary/${tarball%.tar.*}
}

# ---- installing ----

self_test() {  # an incomplete sandbox is said, not fatal: old kernels and containers lack parts of it
  status=0
  "$1/bin/quired" --selftest || status=$?
  case $status in
    0) ;;
    11) say "The sandbox of model processes is not complete here (see above)." ;;
    *) die "the self-test failed with status $status: nothing was installed" ;;
  esac
}

# Makes a folder below the prefix and notes, as lines that end in '/', what did not exist before; "./" is the
# prefix.
make_folder() {
  [ ! -d "$prefix/$1" ] || return 0
  case $1 in */*) make_folder "${1%/*}" ;; esac
  mkdir -p "$prefix/$1"
  echo "$1/" >>"$temporary/folders"
}

copy_files() {
  [ ! -f "$list" ] || remove_files
  : >"$temporary/folders"
  [ -d "$prefix" ] || echo ./ >>"$temporary/folders"
  (cd "$tree" && find . -type f ! -name install.sh | sed 's|^\./||' | sort) >"$temporary/files"
  while read -r file; do
    case $file in */*) make_folder "${file%/*}" ;; esac
    # A program that runs keeps its file: the new one takes the name.
    cp -p "$tree/$file" "$prefix/$file.new"
    if is_root; then chown 0:0 "$prefix/$file.new"; fi
    mv -f "$prefix/$file.new" "$prefix/$file"
  done <"$temporary/files"
  make_folder share/quire
  cp "$tree/install.sh" "$prefix/share/quire/install.sh"
  { cat "$temporary/files"; echo share/quire/install.sh; echo share/quire/installed-files; cat "$temporary/folders"; } >"$list"
}

# The files of the list, then its folders that are empty now, deepest first.
remove_files() {
  old=${TMPDIR:-/tmp}/quire-files.$$
  cp "$list" "$old"
  while read -r file; do
    case $file in /* | *..* | */) continue ;; esac
    rm -f "$prefix/$file"
  done <"$old"
  grep '/$' "$old" | sort -r | while read -r folder; do
    case $folder in /* | *..* | ./) continue ;; esac
    rmdir "$prefix/$folder" 2>/dev/null || true
  done
  if grep -qx './' "$old"; then rmdir "$prefix" 2>/dev/null || true; fi
  rm -f "$old"
}

install_system_service() {
  if ! getent passwd quire >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/quire --shell "$(command -v nologin || echo /bin/false)" \
      --comment "Quire daemon" quire
  fi
  for folder in /var/lib/quire /var/lib/quire/models; do install -d -m 750 -o quire -g quire "$folder"; done
  install -d -m 700 -o quire -g quire /var/cache/quire
  install -d -m 755 /etc/quire
  [ -e /etc/quire/quire.conf ] || install -m 644 "$prefix/share/quire/etc/quire.conf" /etc/quire/quire.conf
  [ -e /etc/quire/keys ] || install -m 600 "$prefix/share/quire/etc/keys" /etc/quire/keys
  mkdir -p "$units"
  sed "s|/usr/bin/quired|$prefix/bin/quired|;s|/usr/share/doc|$prefix/share/doc|" "$prefix/share/quire/systemd/quire.service" \
    >"$units/quire.service"
  cp "$prefix/share/quire/systemd/quire.socket" "$units/quire.socket"
}

install_user_service() {
  mkdir -p "$units"
  cat >"$units/quire.service" <<UNIT
[Unit]
Description=Quire, serves language models on CPUs

[Service]
Type=notify
ExecStart=$prefix/bin/quired
ExecReload=/bin/kill -HUP \$MAINPID
Restart=on-failure
WatchdogSec=30
TimeoutStopSec=45
KillMode=mixed

[Install]
WantedBy=default.target
UNIT
}

install_service() {
  [ "$service" = yes ] || return 0
  has systemctl || { say "There is no systemd here: start $prefix/bin/quired yourself."; return 0; }
  if [ "$scope" = system ]; then install_system_service; else install_user_service; fi
  systemd_runs || { say "The service quire is installed; systemd does not run now."; return 0; }
  manager daemon-reload
  if [ "$scope" = system ]; then manager enable --now quire.socket quire.service; else manager enable --now quire.service; fi
  manager restart quire.service
  say "The service quire runs; its log: journalctl$([ "$scope" = user ] && echo ' --user') -u quire"
}

uninstall() {
  [ -f "$list" ] || die "there is no installation in $prefix"
  if [ -e "$units/quire.service" ] && grep -q "ExecStart=$prefix/bin/quired" "$units/quire.service"; then
    if has systemctl && systemd_runs; then manager disable --now quire.service quire.socket >/dev/null 2>&1 || true; fi
    rm -f "$units/quire.service" "$units/quire.socket"
    # The folder of a user: ~/.config/systemd/user, where nothing else is in it.
    for folder in "$units" "${units%/*}" "${units%/*/*}"; do rmdir "$folder" 2>/dev/null || break; done
    if has systemctl && systemd_runs; then manager daemon-reload || true; fi
  fi
  remove_files
  if [ "$purge" = yes ]; then
    # A daemon that was started by hand keeps prefixes there.
    caches=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}
    rm -rf "$caches/quire"
    rmdir "$caches" 2>/dev/null || true
    if [ "$scope" = system ]; then
      rm -rf /var/lib/quire /var/cache/quire /etc/quire "$units/quire.service.d" "$units/quire.socket.d" /run/quire.sock
      if getent passwd quire >/dev/null && has userdel; then userdel quire 2>/dev/null || true; fi
      if getent group quire >/dev/null && has groupdel; then groupdel quire 2>/dev/null || true; fi
    else
      say "Your models stay in ${OLLAMA_MODELS:-$HOME/.ollama/models}: other programs may use them too."
    fi
  fi
  say "Quire was removed from $prefix."
}

if [ "$action" = uninstall ]; then uninstall; exit 0; fi

temporary=$(mktemp -d)
if [ -z "$from" ]; then from=$(cd "$(dirname "$0")" && pwd); fi
if [ -x "$from/bin/quired" ]; then
  tree=$from  # already unpacked, and so already trusted
else
  unpack
fi
self_test "$tree"
copy_files
install_service
say "Quire is installed in $prefix."
case :$PATH: in *:"$prefix/bin":*) ;; *) say "Add $prefix/bin to your PATH." ;; esac
say "Try: quire run quire-demo \"What is a prefix cache?\""
