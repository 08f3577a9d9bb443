#!/usr/bin/env bash
# packaging/rpm/test.sh PACKAGE.rpm PACKAGE.deb [ROOT]: as far as Debian's rpm reaches: the .rpm has the files
# of the .deb, its settings are configuration files, it requires libraries of the C library only, and its
# scriptlets are valid. In ROOT, a root file system of Debian (made by debootstrap as in
# packaging/tarball/test.sh), rpm installs it, a daemon answers a chat, an upgrade keeps edited settings, and
# after erasing it only these, models, the user and rpm's own data are left. As root, for ROOT.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
. "$here/../portable/roots.sh"
[ $# -ge 2 ] || { sed -n '2s/^# \([^:]*\):.*/usage: \1/p' "$0" >&2; exit 2; }
package=$(realpath "$1") deb=$(realpath "$2") root=${3:-}
work=$(mktemp -d)
clean() {
  [ -z "$root" ] || { unmount_root; rm -rf "$root/tmp/home"; }
  stop_emulation
  rm -rf "$work"
}
trap clean EXIT

# Units lie in /usr/lib in both on releases with merged folders; rpm has build ids, too.
dpkg-deb -c "$deb" | awk '$1 !~ /^d/ {print substr($6, 2)}' | sed 's|^/lib/|/usr/lib/|' | sort >"$work/deb"
rpm -qp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$package" | awk '$1 !~ /^d/ {print $2}' | grep -v build-id | sort >"$work/rpm"
diff "$work/deb" "$work/rpm"
[ "$(rpm -qpc "$package" | sort | tr '\n' ' ')" = "/etc/quire/keys /etc/quire/quire.conf " ]
if rpm -qp --requires "$package" | grep '\.so' | grep -v '^\(lib\(c\|m\|dl\|pthread\|rt\|resolv\)\.so\|ld-linux\)'; then
  echo "the package requires other libraries" >&2
  exit 1
fi
for scriptlet in PREIN POSTIN PREUN POSTUN; do
  rpm -qp --qf "%{$scriptlet}\n" "$package" >"$work/scriptlet"
  sh -n "$work/scriptlet"
done
echo "the files of the .deb ($(wc -l <"$work/rpm")), 2 configuration files, valid scriptlets"

[ -n "$root" ] || exit 0
mkdir -p "$(dirname "$root")"
root=$(cd "$(dirname "$root")" && pwd)/$(basename "$root")
start_emulation
make_root
mount_root
mkdir -p "$root"/usr/lib/{sysusers.d,tmpfiles.d,systemd/system}  # of systemd, where rpm is at home; not the package's own
all_files | grep -v /var/lib/rpm >"$work/before"
rpm_root() { rpm --root "$root" --dbpath /var/lib/rpm --nodeps "$@" 2> >(grep -v "^rpm: " >&2); }
rpm_root -i --ignorearch "$package"  # of another architecture, where ROOT is
chat_in_root /tmp/home
echo "# edited" >>"$root/etc/quire/quire.conf"
rpm_root -U --ignorearch --replacepkgs "$package"
grep -q '^# edited' "$root/etc/quire/quire.conf"
rpm_root -e quire
all_files | grep -v /var/lib/rpm >"$work/after"
[ "$(cat "$root/etc/quire/quire.conf"*)" != "" ]  # as .rpmsave
rm -rf "$root/etc/quire" "$root/var/lib/rpm" "$root/var/lib/quire"
in_root sh -c 'userdel quire 2>/dev/null; groupdel quire 2>/dev/null; true'
diff "$work/before" <(grep -v -e /etc/quire -e /var/lib/quire "$work/after") || { echo "these files were left in $root" >&2; exit 1; }
echo "== installed, asked, upgraded and removed"
