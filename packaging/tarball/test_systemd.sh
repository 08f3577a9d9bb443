#!/usr/bin/env bash
# packaging/tarball/test_systemd.sh RELEASE ROOT: boots systemd in the root file system ROOT (Debian 12, made
# by debootstrap if it is not there) and installs the files of RELEASE (packaging/tarball/build.sh) as root,
# and then as a user. Each time the service runs, answers, is restarted by an upgrade and is gone after
# uninstalling. As root; needs systemd-nspawn (Debian: systemd-container), but no systemd on this machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
. "$here/../portable/systemd_container.sh"
[ $# -eq 2 ] || { sed -n '2s/^# \([^:]*\):.*/usage: \1/p' "$0" >&2; exit 2; }
release=$(cd "$1" && pwd) root=$(mkdir -p "$2" && cd "$2" && pwd)
work=$(mktemp -d)
trap 'halt; rm -rf "$work"' EXIT

as_user() { inside runuser -u alice -- env HOME=/home/alice XDG_RUNTIME_DIR=/run/user/1000 "$@"; }
files() {
  inside find /etc /usr /var /home -xdev \( -path /var/log -o -path /var/cache/apt -o -path /var/lib/systemd \) -prune -o -print |
    grep -v '/etc/[a-z]*-$' | sort
}
main_pid() { "$@" show -P MainPID quire.service; }
runs() { [ "$("$@" is-active quire.service)" = active ]; }

# check_installation COMMAND... -- SYSTEMCTL...: installs by COMMAND, asks, installs again and uninstalls.
check_installation() {
  local as=() manager pid prefix=$1
  shift
  while [ "$1" != -- ]; do as+=("$1"); shift; done
  shift
  manager=("$@")
  "${as[@]}" sh /files/install.sh --checksum-only >"$work/installed"
  grep -q '^The service quire runs' "$work/installed" || { cat "$work/installed"; return 1; }
  wait_for runs "${as[@]}" "${manager[@]}"
  wait_for "${as[@]}" "$prefix/bin/quire" ready
  "${as[@]}" "$prefix/bin/quire" run quire-demo "What is a prefix cache?" | tee "$work/answer"
  grep -q '^A prefix cache' "$work/answer"
  pid=$(main_pid "${as[@]}" "${manager[@]}")
  "${as[@]}" sh /files/install.sh --checksum-only >/dev/null
  [ "$(main_pid "${as[@]}" "${manager[@]}")" != "$pid" ]
  wait_for "${as[@]}" "$prefix/bin/quire" ready
  echo "an upgrade restarts the service"
  "${as[@]}" sh "$prefix/share/quire/install.sh" uninstall --purge
  ! runs "${as[@]}" "${manager[@]}"
}

make_root
in_root useradd --create-home --uid 1000 alice 2>/dev/null || true
boot "$release"
trap 'status=$?; [ $status = 0 ] || inside journalctl --no-pager -n 60 >&2; halt; rm -rf "$work"; exit $status' EXIT
echo "== $(inside systemctl --version | head -n 1)"
inside loginctl enable-linger alice
wait_for inside test -e /run/user/1000/systemd/private
files >"$work/before"
echo "== as root"
check_installation /usr/local inside -- systemctl
echo "== as a user"
check_installation /home/alice/.local as_user -- systemctl --user
inside rm -rf /home/alice/.ollama  # install.sh says that models stay
files >"$work/after"
diff "$work/before" "$work/after" || { echo "these files were left" >&2; exit 1; }
echo "== passed"
