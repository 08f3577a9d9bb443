#!/usr/bin/env bash
# packaging/haproxy/test_systemd.sh PACKAGE.deb ROOT: installs the package and Debian's haproxy in the root file system ROOT (Debian 12,
# made by debootstrap if it is not there), boots systemd and follows docs/fleet.md with two nodes on loopback addresses. The picker
# runs as its unit says and sends requests to the node that has their model; it comes back after it was killed; without it requests
# are answered. As root; needs systemd-nspawn (Debian: systemd-container), but no systemd on this machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
. "$here/../portable/systemd_container.sh"
[ $# -eq 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
package=$(realpath "$1") root=$(mkdir -p "$2" && cd "$2" && pwd)
work=$(mktemp -d)
trap 'halt; rm -rf "$work"' EXIT

# The two nodes differ in one model, `second`, so a node that is chosen by chance is a wrong one.
configure() {
  local etc=$root/etc
  cp "$root/usr/share/quire/haproxy/quire-picker.conf" "$etc/haproxy/"
  sed -e 's/bind :11434/bind 127.0.0.1:8080/' -e 's/10\.0\.0\.1:11434/127.0.0.1:11434/' -e 's/10\.0\.0\.2:11434/127.0.0.2:11434/' \
    "$root/usr/share/quire/haproxy/quire.cfg" >"$etc/haproxy/haproxy.cfg"
  sed -e 's/10\.0\.0\.1:11434/127.0.0.1:11434/' -e 's/10\.0\.0\.2:11434/127.0.0.2:11434/' \
    "$root/usr/share/quire/haproxy/fleet.conf" >"$etc/quire/fleet.conf"
  chmod 600 "$etc/quire/fleet.conf"
}

start_second_node() {
  inside systemd-run --quiet --unit=quire-two --property=DynamicUser=yes --property=StateDirectory=quire-two \
    --property=WorkingDirectory=/var/lib/quire-two --setenv=HOME=/var/lib/quire-two \
    --setenv=OLLAMA_HOST=127.0.0.2:11434 --setenv=OLLAMA_MODELS=/var/lib/quire-two /usr/bin/quired
}
is_ready() { inside env "OLLAMA_HOST=$1" quire ready 2>/dev/null; }
is_active() { inside systemctl --quiet is-active "$1"; }
both_are_known() { [ "$(inside sh -c '. /etc/quire/fleet.conf; export QUIRE_FLEET; quire fleet status' | grep -c ' ready ')" = 2 ]; }

# ask MODEL N: the node that answered a conversation of its own.
ask() {
  inside curl --silent --fail --dump-header - --output /dev/null 127.0.0.1:8080/api/chat --data \
    '{"model":"'"$1"'","stream":false,"options":{"num_predict":4},"messages":[{"role":"user","content":"Conversation '"$2"'"}]}' |
    tr -d '\r' | sed -n 's/^[Xx]-[Qq]uire-[Nn]ode: //p'
}
picker_pid() { inside systemctl show -P MainPID quire-picker.service; }
is_restarted() { local now; now=$(picker_pid); [ "$now" != 0 ] && [ "$now" != "$1" ]; }
all_go_to_second() {
  local i
  for i in $(seq 8); do [ "$(ask second "$1 $i")" = two ] || return 1; done
}

make_root haproxy curl
cp "$package" "$root/tmp/quire.deb"
in_root apt-get install -y -qq --reinstall --no-install-recommends /tmp/quire.deb >"$work/install.log" 2>&1 || { tail "$work/install.log"; exit 1; }
configure
in_root haproxy -c -q -f /etc/haproxy/haproxy.cfg
in_root systemctl --quiet enable haproxy quire-picker
mkdir "$work/files"
boot "$work/files"
trap 'status=$?; [ $status = 0 ] || inside journalctl --no-pager -n 80 >&2; halt; rm -rf "$work"; exit $status' EXIT
echo "== $(inside systemctl --version | head -n 1), $(inside haproxy -v | head -n 1)"

start_second_node
wait_for is_ready 127.0.0.1:11434
wait_for is_ready 127.0.0.2:11434
wait_for is_active quire-picker
wait_for is_active haproxy
inside env OLLAMA_HOST=127.0.0.2:11434 quire cp quire-demo second
wait_for both_are_known
inside sh -c '. /etc/quire/fleet.conf; export QUIRE_FLEET; quire fleet status'
uid=$(inside ps -o uid= -p "$(picker_pid)" 2>/dev/null || inside stat -c %u "/proc/$(picker_pid)")
[ "$uid" -ge 61184 ] && echo "the picker is user $uid of its own, $(inside systemd-analyze security quire-picker.service | tail -n 1 | sed 's/^[^O]*//')"

wait_for all_go_to_second first
echo "8 conversations with a model of one node: all answered by it"
for i in $(seq 20); do ask quire-demo "spread $i"; done | sort | uniq -c | sed 's/^/20 conversations with a model of both: /'

before=$(picker_pid)
inside sh -c "kill -KILL $before"
for i in $(seq 4); do [ -n "$(ask quire-demo "meanwhile $i")" ]; done
wait_for is_restarted "$before"
wait_for all_go_to_second again
echo "the picker was killed, requests were answered meanwhile, it came back and chooses again"

inside systemctl stop quire-picker
for i in $(seq 8); do [ -n "$(ask quire-demo "alone $i")" ]; done
echo "without the picker 8 conversations were answered"
