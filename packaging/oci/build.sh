#!/usr/bin/env bash
# packaging/oci/build.sh TARBALL.tar.gz [TAG]: builds the images TAG (default: localhost/quire:VERSION) and TAG-without-model with
# buildah, from the portable tarball. QUIRE_BASE_IMAGE names the base of the first stage; without it the image is made from
# Debian 12 by debootstrap. More arguments of buildah: QUIRE_BUILDAH ("buildah --storage-driver vfs").
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
tarball=$(realpath "${1:?usage: build.sh TARBALL.tar.gz [TAG]}")
version=$(basename "$tarball" | sed -n 's/^quire-\([0-9.]*\)-linux-.*/\1/p')
tag=${2:-localhost/quire:$version}
read -ra buildah <<<"${QUIRE_BUILDAH:-buildah}"
read -ra options <<<"${QUIRE_BUILDAH_BUD:-}"
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

base=${QUIRE_BASE_IMAGE:-}
if [ -z "$base" ]; then
  base=localhost/quire-base:bookworm
  if ! "${buildah[@]}" inspect --type image "$base" >/dev/null 2>&1; then
    debootstrap --variant=minbase --include=ca-certificates bookworm "$context/base" "$(archive_url)" >"$context/log" ||
      { tail "$context/log"; exit 1; }
    container=$("${buildah[@]}" from scratch)
    "${buildah[@]}" add -q "$container" "$context/base" / >/dev/null
    "${buildah[@]}" commit -q --rm "$container" "$base" >/dev/null
    rm -rf "$context/base"
  fi
fi

cp "$here/Containerfile" "$here/image_files.sh" "$context/"
cp "$tarball" "$context/quire.tar.gz"
# Health checks are part of Docker's image format only.
for target in quire-without-model quire; do
  name=$tag
  [ $target = quire ] || name=$tag-without-model
  "${buildah[@]}" bud "${options[@]}" --format docker --layers=false --build-arg "BASE=$base" --target "$target" -t "$name" \
    ${SOURCE_DATE_EPOCH:+--timestamp "$SOURCE_DATE_EPOCH"} -f "$context/Containerfile" "$context" >"$context/log" 2>&1 ||
    { cat "$context/log"; exit 1; }
done
"${buildah[@]}" images --format '{{.Name}}:{{.Tag}} {{.Size}}' | grep -F "${tag%:*}"
