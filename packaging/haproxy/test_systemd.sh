#!/usr/bin/env bash
# packaging/haproxy/test_systemd.sh PACKAGE.deb ROOT: installs the package and Debian's haproxy in the root
# file system ROOT (Debian 12, made by debootstrap if it is not there), boots systemd and follows
# docs/fleet.md with two nodes on loopback addresses. Turns of a conversation go to one node; when that node
# is stopped they are answered by the other one. As root; needs systemd-nspawn (Debian: systemd-container),
# but no systemd on this machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
. "$here/../portable/systemd_container.sh"
[ $# -eq 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
package=$(realpath "$1") root=$(mkdir -p "$2" && cd "$2" && pwd)
work=$(mktemp -d)
trap 'halt; rm -rf "$work"' EXIT

configure() {
  local etc=$root/etc
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

# ask N: the node that answered a turn of conversation N.
ask() {
  inside curl --silent --fail --dump-header - --output /dev/null 127.0.0.1:8080/api/chat --data \
    '{"model":"quire-demo","stream":false,"options":{"num_predict":4},"messages":[{"role":"user","content":"Conversation '"$1"'"}]}' |
    tr -d '\r' | sed -n 's/^[Xx]-[Qq]uire-[Nn]ode: //p'
}

make_root haproxy curl
cp "$package" "$root/tmp/quire.deb"
in_root apt-get install -y -qq --reinstall --no-install-recommends /tmp/quire.deb >"$work/install.log" 2>&1 || { tail "$work/install.log"; exit 1; }
configure
in_root haproxy -c -q -f /etc/haproxy/haproxy.cfg
in_root systemctl --quiet enable haproxy
mkdir "$work/files"
boot "$work/files"
trap 'status=$?; [ $status = 0 ] || inside journalctl --no-pager -n 80 >&2; halt; rm -rf "$work"; exit $status' EXIT
echo "== $(inside systemctl --version | head -n 1), $(inside haproxy -v | head -n 1)"

start_second_node
wait_for is_ready 127.0.0.1:11434
wait_for is_ready 127.0.0.2:11434
wait_for is_active haproxy
wait_for both_are_known
inside sh -c '. /etc/quire/fleet.conf; export QUIRE_FLEET; quire fleet status'

for i in $(seq 20); do
  first=$(ask "$i")
  [ -n "$first" ] && [ "$(ask "$i")" = "$first" ] || { echo "conversation $i left its node" >&2; exit 1; }
  echo "$first"
done | sort | uniq -c | sed 's/^/20 conversations, each on one node: /'

inside systemctl stop quire-two
for i in $(seq 20); do [ "$(ask "$i")" = one ]; done
echo "one node is stopped: the other one answered 20 conversations"
