#!/usr/bin/env bash
# packaging/apt/publish.sh REPOSITORY SUITE PACKAGE.deb...: adds packages to an apt repository in the folder
# REPOSITORY and signs its Release file with the key QUIRE_APT_KEY (a GnuPG key id; its home is GNUPGHOME).
# Any web server serves the folder. Needs apt-utils and gpg. Users add, with the key that this puts into
# REPOSITORY/quire.gpg:
#
#   deb [signed-by=/usr/share/keyrings/quire.gpg] ADDRESS SUITE main
#
# A package that is there already must be the same file: versions are never replaced.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
for tool in apt-ftparchive gpg; do
  command -v $tool >/dev/null || { echo "publish.sh: there is no $tool (Debian: apt-utils, gpg)" >&2; exit 1; }
done
repository=$(mkdir -p "$1" && cd "$1" && pwd) suite=$2
shift 2
: "${QUIRE_APT_KEY:?set QUIRE_APT_KEY to the key that signs}"
export LC_ALL=C

pool=pool/$suite/main/q/quire
mkdir -p "$repository/$pool"
for package in "$@"; do
  to=$repository/$pool/$(basename "$package")
  if [ -e "$to" ] && ! cmp -s "$package" "$to"; then
    echo "publish.sh: another $(basename "$package") is published already" >&2
    exit 1
  fi
  cp "$package" "$to"
done

cd "$repository"
architectures=$(for package in "$pool"/*.deb; do dpkg-deb -f "$package" Architecture; done | sort -u | tr '\n' ' ')
dist=dists/$suite
for architecture in $architectures; do
  lists=$dist/main/binary-$architecture
  mkdir -p "$lists"
  apt-ftparchive --arch "$architecture" packages "$pool" >"$lists/Packages"
  gzip -9nkf "$lists/Packages"
done
apt-ftparchive -o APT::FTPArchive::Release::Origin=Quire -o APT::FTPArchive::Release::Label=Quire \
  -o "APT::FTPArchive::Release::Suite=$suite" -o "APT::FTPArchive::Release::Codename=$suite" \
  -o "APT::FTPArchive::Release::Architectures=${architectures% }" -o APT::FTPArchive::Release::Components=main \
  release "$dist" >"$dist/Release.new"
mv "$dist/Release.new" "$dist/Release"
rm -f "$dist/Release.gpg" "$dist/InRelease"
gpg --batch --yes --local-user "$QUIRE_APT_KEY" --armor --detach-sign -o "$dist/Release.gpg" "$dist/Release"
gpg --batch --yes --local-user "$QUIRE_APT_KEY" --clearsign -o "$dist/InRelease" "$dist/Release"
gpg --batch --yes --export "$QUIRE_APT_KEY" >quire.gpg
echo "published for $suite: $(cd "$pool" && echo *.deb)"
