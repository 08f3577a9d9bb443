# Sourced by tests of this folder's neighbors: a Debian 12 in which systemd is booted, on a machine that need
# not have it. As root; needs systemd-nspawn (Debian: systemd-container) and debootstrap. The caller sources
# debian_packages.sh, sets `root`, the folder of the root file system, and `work`, a folder of its own, and
# calls `halt` when it ends.

manager='' leader=''

# make_root PACKAGE...: with these of Debian's packages.
make_root() {
  [ -e "$root/etc/os-release" ] || debootstrap --variant=minbase --include=systemd-sysv,dbus,libpam-systemd,dbus-user-session \
    bookworm "$root" "$(archive_url)" >"$work/root.log" 2>&1 || { tail "$work/root.log" >&2; return 1; }
  [ $# -eq 0 ] || in_root sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' - "$@" \
    >"$work/root.log" 2>&1 || { tail "$work/root.log" >&2; return 1; }
}
# Before it is booted.
in_root() {
  chroot "$root" /usr/bin/env -i HOME=/root DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# boot FILES: the folder FILES is /files there.
boot() {
  systemd-nspawn --quiet --boot --register=no --keep-unit --private-network --console=pipe --link-journal=no \
    --bind-ro="$1:/files" --directory="$root" </dev/null >"$work/console" 2>&1 &
  manager=$!
  wait_for has_booted || { cat "$work/console" >&2; return 1; }
}
# Units that a container cannot have may have failed: "degraded".
has_booted() {
  kill -0 "$manager" && leader=$(pgrep -P "$manager" -x systemd) &&
    { inside systemctl is-system-running || true; } >"$work/state" 2>/dev/null && grep -qx 'running\|degraded' "$work/state"
}
halt() {
  [ -z "$manager" ] || { kill "$manager" 2>/dev/null; wait "$manager" 2>/dev/null; } || true
  manager=''
}

# wait_for COMMAND...: until it succeeds, for a minute.
wait_for() {
  local tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { echo "waited a minute for: $*" >&2; return 1; }
    sleep 0.2
  done
}

inside() {
  nsenter --target "$leader" --all --root --wd /usr/bin/env -i HOME=/root DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
