#!/usr/bin/env bash
# packaging/oci/build.sh TARBALL.tar.gz... [TAG]: builds the images TAG (default: localhost/quire:VERSION) and
# TAG-without-model with buildah, from the portable tarball. With the tarballs of several architectures TAG
# and TAG-without-model are manifest lists, the images of the architectures are TAG-amd64 and so on, and Linux
# must start programs of each (qemu-user-static and binfmt-support). QUIRE_BASE_IMAGE names the base of the
# first stage; without it the image is made from Debian 12 by debootstrap. More arguments of buildah:
# QUIRE_BUILDAH ("buildah --storage-driver vfs").
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
tarballs=() tag=
for one in "$@"; do
  case $one in *.tar.gz) tarballs+=("$(realpath "$one")") ;; *) tag=$one ;; esac
done
[ ${#tarballs[@]} -gt 0 ] || { sed -n '2s/^# \([^:]*\):.*/usage: \1/p' "$0" >&2; exit 2; }
version=$(basename "${tarballs[0]}" | sed -n 's/^quire-\([0-9.]*\)-linux-.*/\1/p')
tag=${tag:-localhost/quire:$version}
read -ra buildah <<<"${QUIRE_BUILDAH:-buildah}"
read -ra options <<<"${QUIRE_BUILDAH_BUD:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# base_image ARCHITECTURE: prints the name of the first stage's image.
base_image() {
  local architecture=$1 base=localhost/quire-base:bookworm-$1 container
  if [ -n "${QUIRE_BASE_IMAGE:-}" ]; then echo "$QUIRE_BASE_IMAGE"; return; fi
  if ! "${buildah[@]}" inspect --type image "$base" >/dev/null 2>&1; then
    debootstrap --variant=minbase --arch="$architecture" --include=ca-certificates bookworm "$work/base" "$(archive_url)" \
      >"$work/log" || { tail "$work/log" >&2; return 1; }
    container=$("${buildah[@]}" from --arch "$architecture" scratch)
    "${buildah[@]}" config --arch "$architecture" "$container"
    "${buildah[@]}" add -q "$container" "$work/base" / >/dev/null
    "${buildah[@]}" commit -q --rm "$container" "$base" >/dev/null
    rm -rf "$work/base"
  fi
  echo "$base"
}

# build_images TARBALL ARCHITECTURE TAG
build_images() {
  local tarball=$1 architecture=$2 context=$work/context target name base
  base=$(base_image "$architecture")
  rm -rf "$context"
  mkdir "$context"
  cp "$here/Containerfile" "$here/image_files.sh" "$context/"
  cp "$tarball" "$context/quire.tar.gz"
  # Health checks are part of Docker's image format only.
  for target in quire-without-model quire; do
    name=$3
    [ $target = quire ] || name=$3-without-model
    "${buildah[@]}" bud "${options[@]}" --arch "$architecture" --format docker --layers=false --build-arg "BASE=$base" \
      --target "$target" -t "$name" ${SOURCE_DATE_EPOCH:+--timestamp "$SOURCE_DATE_EPOCH"} -f "$context/Containerfile" "$context" \
      >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  done
}

architecture_of() {
  local machine=${1##*-linux-}
  debian_architecture "${machine%.tar.gz}"
}

if [ ${#tarballs[@]} = 1 ]; then
  build_images "${tarballs[0]}" "$(architecture_of "${tarballs[0]}")" "$tag"
else
  for list in "$tag" "$tag-without-model"; do
    "${buildah[@]}" manifest rm "$list" >/dev/null 2>&1 || "${buildah[@]}" rmi "$list" >/dev/null 2>&1 || true
    "${buildah[@]}" manifest create "$list" >/dev/null
  done
  for tarball in "${tarballs[@]}"; do
    architecture=$(architecture_of "$tarball")
    build_images "$tarball" "$architecture" "$tag-$architecture"
    "${buildah[@]}" manifest add --arch "$architecture" "$tag" "containers-storage:$tag-$architecture" >/dev/null
    "${buildah[@]}" manifest add --arch "$architecture" "$tag-without-model" \
      "containers-storage:$tag-$architecture-without-model" >/dev/null
  done
fi
"${buildah[@]}" images --format '{{.Name}}:{{.Tag}} {{.Size}}' | grep -F "${tag%:*}"
