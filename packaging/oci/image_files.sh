#!/bin/sh
# image_files.sh RELEASE IMAGE: lays out the files of the final image in IMAGE, the bundled model in /demo.
# Runs in the first stage of the Containerfile, which has the unpacked tarball in RELEASE.
set -eu
tree=$(echo "$1"/quire-*)
image=$2

mkdir -p "$image/usr/bin" "$image/usr/lib/quire" "$image/usr/share/doc" "$image/etc/ssl/certs" "$image/models" "$image/tmp" \
  "$image/proc" "$image/sys" "$image/dev"
# `quire serve` is the daemon: one program of two.
cp "$tree/bin/quire" "$image/usr/bin/"
cp "$tree/lib/quire/quire-runner" "$image/usr/lib/quire/"
mkdir -p "$image/usr/share/doc/quire"
cp "$tree/share/doc/quire/LICENSE" "$tree/share/doc/quire/sbom.spdx.json" "$image/usr/share/doc/quire/"
cp -r "$tree/share/doc/quire/licenses" "$image/usr/share/doc/quire/"
mkdir -p /demo/usr/share
cp -r "$tree/share/quire" /demo/usr/share/quire
rm -rf /demo/usr/share/quire/etc /demo/usr/share/quire/systemd /demo/usr/share/quire/grafana /demo/usr/share/quire/prometheus

# The C library, at the places where the programs look for it.
for library in $(ldd "$tree/bin/quire" "$tree/lib/quire/quire-runner" | sed -n "s/^[^/]*\(\/[^ ]*\) (0x.*/\1/p" | sort -u); do
  mkdir -p "$image$(dirname "$library")"
  cp -L "$library" "$image$library"
done

cp /etc/ssl/certs/ca-certificates.crt "$image/etc/ssl/certs/" || {
  echo "image_files.sh: the base image has no CA certificates: models could not be pulled" >&2
  exit 1
}
printf 'root:x:0:0:root:/:/none\nquire:x:65532:65532:Quire:/tmp:/none\n' >"$image/etc/passwd"
printf 'root:x:0:\nquire:x:65532:\n' >"$image/etc/group"
printf 'hosts: files dns\n' >"$image/etc/nsswitch.conf"
chown -R 0:0 "$image" /demo
chown 65532:65532 "$image/models"
chmod 1777 "$image/tmp"
if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then find "$image" /demo -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; fi
