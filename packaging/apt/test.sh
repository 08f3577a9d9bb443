#!/usr/bin/env bash
# packaging/apt/test.sh PACKAGE.deb... [ROOT...]: publishes the packages, of one version and one or more
# architectures, in a temporary repository with a temporary key and has apt read it: a good signature is
# accepted, a changed Release file refused. In each ROOT, a root file system, apt installs it from there as a
# new user would; it answers a chat, and after purging no file may be left. As root. A ROOT that is not there
# is made by debootstrap, as in packaging/tarball/test.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
. "$here/../portable/roots.sh"
packages=() roots=()
for one in "$@"; do
  case $one in *.deb) packages+=("$(realpath "$one")") ;; *) roots+=("$one") ;; esac
done
[ ${#packages[@]} -gt 0 ] || { sed -n '2s/^# \([^:]*\):.*/usage: \1/p' "$0" >&2; exit 2; }
root=
work=$(mktemp -d)
end_root() {
  [ -z "$root" ] || { unmount_root; rm -rf "$root/tmp/repository" "$root/tmp/home"; }
  stop_emulation
}
clean() {
  end_root
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
for suite in bookworm trixie; do  # the same package is for both
  for package in "${packages[@]}"; do "$here/publish.sh" "$repository" $suite "$package"; done
  "$here/publish.sh" "$repository" $suite "${packages[@]}" >/dev/null  # again: nothing changes
done

# apt_for ARCHITECTURE COMMAND...: an apt that knows this repository alone.
apt_for() {
  local architecture=$1 command=$2
  shift 2
  "$command" -o "Dir::Etc=$work/etc" -o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache" \
    -o APT::Sandbox::User=root -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" "$@"
}
for package in "${packages[@]}"; do
  architecture=$(dpkg-deb -f "$package" Architecture)
  for suite in bookworm trixie; do
    rm -rf "$work/state" "$work/cache"
    mkdir -p "$work/etc/preferences.d" "$work/etc/apt.conf.d" "$work/state/lists/partial" "$work/cache/archives/partial"
    : >"$work/status"
    echo "deb [signed-by=$repository/quire.gpg] file:$repository $suite main" >"$work/etc/sources.list"
    apt_for "$architecture" apt-get update -qq
    apt_for "$architecture" apt-cache policy quire >"$work/policy"
    grep -q "Candidate: $(dpkg-deb -f "$package" Version)" "$work/policy"
    echo "$suite, $architecture: $(sed -n 's/^ *Candidate: //p' "$work/policy")"
  done
done

cp -r "$repository" "$work/changed"
sed -i 's/^Origin: Quire/Origin: Other/' "$work/changed/dists/trixie/InRelease" "$work/changed/dists/trixie/Release"
echo "deb [signed-by=$repository/quire.gpg] file:$work/changed trixie main" >"$work/etc/sources.list"
if apt_for "$architecture" apt-get update -qq 2>"$work/refused"; then echo "a changed Release file was accepted" >&2; exit 1; fi
grep -iq 'signature' "$work/refused"
echo "a changed Release file is refused"

test_root() {
  start_emulation
  make_root
  mount_root
  cp -r "$repository" "$root/tmp/repository"
  # The dependencies first: what they bring is not the package's.
  in_root sh -ec '
    . /etc/os-release; echo "== $PRETTY_NAME, $(uname -m)"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd init-system-helpers >/dev/null 2>&1
  '
  all_files >"$work/before"
  in_root sh -ec '
    suite=$(. /etc/os-release; echo "$VERSION_CODENAME")
    echo "deb [signed-by=/tmp/repository/quire.gpg] file:/tmp/repository $suite main" >/etc/apt/sources.list.d/quire.list
    apt-get update -qq && apt-get install -y -qq --no-install-recommends quire >/dev/null
    quired --selftest || [ $? = 11 ]
  '
  chat_in_root /tmp/home
  in_root sh -ec '
    apt-get remove -y -qq quire >/dev/null
    [ ! -e /usr/bin/quired ] && [ -e /etc/quire/quire.conf ]
    apt-get purge -y -qq quire >/dev/null
    rm /etc/apt/sources.list.d/quire.list
    ! getent passwd quire && ! getent group quire
  '
  all_files >"$work/after"
  diff "$work/before" "$work/after" || { echo "these files were left in $root" >&2; return 1; }
  end_root
  echo "== passed"
}
for one in "${roots[@]}"; do
  mkdir -p "$(dirname "$one")"
  root=$(cd "$(dirname "$one")" && pwd)/$(basename "$one")
  test_root
done
