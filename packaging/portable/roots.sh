# Sourced by tests: root file systems of Debian's releases, of another architecture too (by qemu-user-static).
# As root; needs debootstrap. The caller sources debian_packages.sh and sets `root`, a folder whose name is
# SUITE or SUITE-ARCHITECTURE (bookworm, trixie-arm64).

binfmt=/proc/sys/fs/binfmt_misc

# root_architecture: Debian's name for the architecture of `root`.
root_architecture() {
  case $root in
    *-arm64) echo arm64 ;;
    *-amd64) echo amd64 ;;
    *) dpkg --print-architecture ;;
  esac
}

# Linux starts qemu for programs of arm64 until stop_emulation, where that is not set up already.
emulation_started=no
start_emulation() {
  [ "$(root_architecture)" != "$(dpkg --print-architecture)" ] || return 0
  [ -e "$binfmt/register" ] || mount -t binfmt_misc binfmt_misc "$binfmt"
  [ ! -e "$binfmt/qemu-aarch64" ] || return 0
  cat /usr/lib/binfmt.d/qemu-aarch64.conf >"$binfmt/register"
  emulation_started=yes
}
stop_emulation() {
  [ $emulation_started = no ] || echo -1 >"$binfmt/qemu-aarch64"
  emulation_started=no
}

make_root() {
  [ ! -e "$root/etc/os-release" ] || return 0
  local suite
  suite=$(basename "$root")
  mkdir -p "$(dirname "$root")"
  debootstrap --variant=minbase --arch="$(root_architecture)" "${suite%-*}" "$root" "$(archive_url)" >"$root.log" 2>&1 ||
    { tail "$root.log" >&2; return 1; }
}

in_root() {
  chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}

# All files but what apt and dpkg keep for themselves.
all_files() {
  find "$root" -xdev \( -path "$root/proc" -o -path "$root/dev" -o -path "$root/sys" -o -path "$root/tmp" \
    -o -path "$root/var/lib/apt" -o -path "$root/var/cache" -o -path "$root/var/log" \) -prune -o -print |
    grep -v -e '/etc/[a-z]*-$' -e '/var/lib/dpkg/.*-old$' | sort
}

mount_root() {
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --make-rslave "$root/dev"
}
unmount_root() { umount -l "$root/proc" "$root/dev" 2>/dev/null || true; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# chat_in_root [HOME]: starts the daemon that is installed in `root`, asks the bundled model and stops it.
chat_in_root() {
  in_root HOME="${1:-/root}" OLLAMA_HOST="127.0.0.1:$(free_port)" OLLAMA_MODELS=/tmp/models sh -ec '
    quired >/tmp/quired.log 2>&1 & daemon=$!
    tries=0
    until quire ready 2>/dev/null; do
      kill -0 $daemon || { cat /tmp/quired.log; exit 1; }
      tries=$((tries + 1)); [ $tries -lt 600 ] || exit 1
      sleep 0.2
    done
    answer=$(quire run quire-demo "What is a prefix cache?")
    echo "$answer"
    kill $daemon; wait $daemon || true
    rm -rf /tmp/models /tmp/quired.log
    case $answer in "A prefix cache"*) ;; *) echo "another answer was expected" >&2; exit 1 ;; esac
  '
}
