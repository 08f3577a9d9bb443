#!/usr/bin/env bash
# packaging/tarball/test.sh RELEASE ROOT...: installs the files of RELEASE (packaging/tarball/build.sh) in
# each root file system as a new user would, chats, and removes it; then no file may be left. As root. A ROOT
# that is not there is made by debootstrap; its last component is then the suite (bullseye, bookworm, trixie,
# sid), with -arm64 that of another architecture. QUIRE_PUBLIC_KEY: the key that signed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
. "$here/../portable/roots.sh"
release=$(cd "${1:?usage: test.sh RELEASE ROOT...}" && pwd)
shift
work=$(mktemp -d)
root=

end_root() {
  [ -z "$root" ] || { unmount_root; rm -rf "$root/tmp/release"; }
  stop_emulation
}
trap 'end_root; rm -rf "$work"' EXIT

test_root() {
  start_emulation
  make_root
  mkdir -p "$root/tmp/release"
  mount_root
  cp "$release"/* "$root/tmp/release/"
  all_files >"$work/before"
  local verify=--checksum-only
  if [ -n "${QUIRE_PUBLIC_KEY:-}" ] && in_root sh -c 'command -v minisign || openssl version | grep -q "^OpenSSL [3-9]"' >/dev/null 2>&1
  then verify="--public-key $QUIRE_PUBLIC_KEY"; fi
  in_root sh -ec "
    . /etc/os-release; echo \"== \$PRETTY_NAME, \$(uname -m), \$(ldd --version | head -n 1)\"
    cd /tmp/release
    sh install.sh $verify
  "
  chat_in_root
  in_root sh /usr/local/share/quire/install.sh uninstall --purge
  all_files >"$work/after"
  diff "$work/before" "$work/after" || { echo "these files were left in $root" >&2; return 1; }
  end_root
  echo "== passed"
}

for one in "$@"; do
  mkdir -p "$(dirname "$one")"
  root=$(cd "$(dirname "$one")" && pwd)/$(basename "$one")
  test_root
done
