#!/usr/bin/env bash
# packaging/tarball/test.sh RELEASE ROOT...: installs the files of RELEASE (packaging/tarball/build.sh) in each root file system
# as a new user would, chats, and removes it; then no file may be left. As root. A ROOT that is not there is made by
# debootstrap; its last component is then the suite (bullseye, bookworm, trixie, sid). QUIRE_PUBLIC_KEY: the key that signed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
release=$(cd "${1:?usage: test.sh RELEASE ROOT...}" && pwd)
shift

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

make_root() {
  [ -e "$1/etc/os-release" ] && return
  debootstrap --variant=minbase "$(basename "$1")" "$1" "$(archive_url)" >"$1.log" 2>&1 || { tail "$1.log"; return 1; }
}

in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
all_files() { find "$root" -xdev \( -path "$root/proc" -o -path "$root/dev" -o -path "$root/sys" -o -path "$root/tmp" \) -prune -o -print | sort; }

end_root() {
  umount -l "$root/proc" "$root/dev" 2>/dev/null || true
  rm -rf "$root/tmp/release" "$root/tmp/models"
}

test_root() {
  root=$1
  make_root "$root"
  mkdir -p "$root/tmp/release"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --make-rslave "$root/dev"
  trap end_root EXIT
  cp "$release"/* "$root/tmp/release/"
  all_files >"$root/../before.$$"
  local verify=--checksum-only port
  if [ -n "${QUIRE_PUBLIC_KEY:-}" ] && in_root sh -c 'command -v minisign || openssl version | grep -q "^OpenSSL [3-9]"' >/dev/null 2>&1
  then verify="--public-key $QUIRE_PUBLIC_KEY"; fi
  port=$(free_port)
  in_root sh -ec "
    . /etc/os-release; echo \"== \$PRETTY_NAME, \$(ldd --version | head -n 1)\"
    cd /tmp/release
    sh install.sh $verify
    export OLLAMA_HOST=127.0.0.1:$port OLLAMA_MODELS=/tmp/models
    quired >/tmp/release/quired.log 2>&1 & daemon=\$!
    tries=0
    until quire ready 2>/dev/null; do
      kill -0 \$daemon || { cat /tmp/release/quired.log; exit 1; }
      tries=\$((tries + 1)); [ \$tries -lt 600 ] || exit 1
      sleep 0.2
    done
    quire run quire-demo 'What is a prefix cache?'
    kill \$daemon; wait \$daemon || true
    sh /usr/local/share/quire/install.sh uninstall --purge
  "
  all_files >"$root/../after.$$"
  end_root
  trap - EXIT
  diff "$root/../before.$$" "$root/../after.$$" || { echo "these files were left in $root" >&2; return 1; }
  rm "$root/../before.$$" "$root/../after.$$"
  echo "== passed"
}

for one in "$@"; do
  mkdir -p "$(dirname "$one")"
  test_root "$(cd "$(dirname "$one")" && pwd)/$(basename "$one")"
done
