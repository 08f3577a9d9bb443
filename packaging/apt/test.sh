#!/usr/bin/env bash
# packaging/apt/test.sh PACKAGE.deb [ROOT]: publishes the package in a temporary repository with a temporary key and has apt
# read it: a good signature is accepted, a changed Release file refused. With ROOT, a root file system, it is installed there and
# removed again. As root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=$(realpath "${1:?usage: test.sh PACKAGE.deb [ROOT]}")
root=${2:-}
work=$(mktemp -d)
clean() {
  if [ -n "$root" ]; then umount -l "$root/proc" 2>/dev/null || true; rm -rf "$root/tmp/repository"; fi
  gpgconf --homedir "$work/gnupg" --kill all 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
export GNUPGHOME=$work/gnupg
mkdir -m 700 "$GNUPGHOME"
gpg --batch -q --passphrase '' --quick-generate-key "Quire test <test@quire.invalid>" ed25519 sign
QUIRE_APT_KEY=$(gpg --batch --with-colons --list-keys | awk -F: '/^fpr/ {print $10; exit}')
export QUIRE_APT_KEY
repository=$work/repository
"$here/publish.sh" "$repository" stable "$package"
"$here/publish.sh" "$repository" stable "$package" >/dev/null  # again: nothing changes

apt_here() {
  local command=$1
  shift
  "$command" -o "Dir::Etc=$work/etc" -o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" \
    -o APT::Sandbox::User=root "$@"
}
mkdir -p "$work/etc" "$work/state/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
echo "deb [signed-by=$repository/quire.gpg] file:$repository stable main" >"$work/etc/sources.list"
apt_here apt-get update -qq
apt_here apt-cache policy quire | sed -n 1,3p
apt_here apt-cache policy quire | grep -q "Candidate: $(dpkg-deb -f "$package" Version)"

cp -r "$repository" "$work/changed"
sed -i 's/^Origin: Quire/Origin: Other/' "$work/changed/dists/stable/InRelease" "$work/changed/dists/stable/Release"
echo "deb [signed-by=$repository/quire.gpg] file:$work/changed stable main" >"$work/etc/sources.list"
if apt_here apt-get update -qq 2>"$work/refused"; then echo "a changed Release file was accepted" >&2; exit 1; fi
grep -iq 'signature' "$work/refused"
echo "a changed Release file is refused"

[ -n "$root" ] || exit 0
cp -r "$repository" "$root/tmp/repository"
mount -t proc proc "$root/proc"
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
in_root sh -ec '
  echo "deb [signed-by=/tmp/repository/quire.gpg] file:/tmp/repository stable main" >/etc/apt/sources.list.d/quire.list
  apt-get update -qq && apt-get install -y -qq --no-install-recommends quire >/dev/null
  quired --selftest || [ $? = 11 ]
  apt-get purge -y -qq quire >/dev/null
  rm /etc/apt/sources.list.d/quire.list
  left=$(find / -xdev -path /proc -prune -o -path /tmp -prune -o \( -path "*quire*" ! -path "/var/lib/apt/*" ! -path "/var/cache/apt/*" \) -print)
  [ -z "$left" ] || { echo "left behind: $left"; exit 1; }
'
echo "installed and removed in $root"
