#!/usr/bin/env bash
# packaging/oci/test.sh TARBALL.tar.gz...: builds the images and checks them as a user would run them: size,
# self-test with a read-only root file system, limits of the control group, an answer, the health check,
# SIGTERM during an answer, and a registry's round trip. With the tarballs of two architectures, also the
# manifest list, and the other architecture's image under qemu-user-static. As root; needs buildah, podman and
# docker-registry. In a container without namespaces of its own:
#   QUIRE_BUILDAH="buildah --storage-driver vfs" QUIRE_BUILDAH_BUD="--isolation chroot"
#   QUIRE_PODMAN="podman --cgroup-manager cgroupfs --runtime runc --storage-driver vfs"
#   QUIRE_PODMAN_RUN="--network host --ulimit nofile=1024:1024 --ulimit nproc=1000:1000"
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../portable/debian_packages.sh"
. "$here/../portable/roots.sh"
[ $# -gt 0 ] || { sed -n '2s/^# \([^:]*\):.*/usage: \1/p' "$0" >&2; exit 2; }
tag=localhost/quire-test:now
read -ra podman <<<"${QUIRE_PODMAN:-podman}"
read -ra buildah <<<"${QUIRE_BUILDAH:-buildah}"
read -ra run_options <<<"${QUIRE_PODMAN_RUN:-}"
options=(--read-only --cap-drop=ALL --security-opt=no-new-privileges "${run_options[@]}")
bytes_max=$((40 << 20))
work=$(mktemp -d)
name=quire-test-$$
registry=
clean() {
  "${podman[@]}" rm -f "$name" >/dev/null 2>&1 || true
  [ -z "$registry" ] || kill "$registry" 2>/dev/null || true
  stop_emulation
  rm -rf "$work"
}
trap clean EXIT
say() { printf '\n== %s\n' "$*"; }

# check_files IMAGE WITHOUT_MODEL
check_files() {
  local size with
  size=$("${podman[@]}" image inspect --format '{{.Size}}' "$2")
  with=$("${podman[@]}" image inspect --format '{{.Size}}' "$1")
  echo "$("${podman[@]}" image inspect --format '{{.Architecture}}' "$1"): $size bytes, with the model $with bytes"
  [ "$size" -le "$bytes_max" ] || { echo "larger than $bytes_max bytes" >&2; return 1; }
  [ "$("${podman[@]}" image inspect --format '{{.User}}' "$1")" = 65532:65532 ]
  "${podman[@]}" image inspect --format '{{.HealthCheck.Test}}' "$1" | grep -q '/usr/bin/quire ready'
}

self_test() {
  local status=0
  "${podman[@]}" run --rm "${options[@]}" "$1" serve --selftest || status=$?
  [ $status = 0 ] || [ $status = 11 ] || { echo "the self-test failed: $status" >&2; return 1; }
}

# start IMAGE OPTION...: until the health check passes; sets `port`.
start() {
  local image=$1 tries=0
  shift
  port=$(free_port)
  rm -rf "$work/models"
  mkdir -m 777 "$work/models"
  "${podman[@]}" run -d --name "$name" "${options[@]}" "$@" --tmpfs /tmp -v "$work/models:/models" \
    -e "OLLAMA_HOST=127.0.0.1:$port" "$image" >/dev/null
  until "${podman[@]}" exec "$name" /usr/bin/quire ready 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { "${podman[@]}" logs "$name"; return 1; }
    sleep 0.2
  done
  echo "the health check passes"
}

ask() {
  local answer
  answer=$("${podman[@]}" exec "$name" /usr/bin/quire run quire-demo "What is a prefix cache?")
  echo "$answer"
  [[ $answer == "A prefix cache"* ]]
  "${podman[@]}" logs "$name" 2>&1 | grep -i 'confined without' || echo "the runner's sandbox is complete"
}

stop() {
  "${podman[@]}" stop -t 60 "$name" >/dev/null
  [ "$("${podman[@]}" inspect --format '{{.State.ExitCode}}' "$name")" = 0 ]
  "${podman[@]}" rm "$name" >/dev/null
}

# An answer that runs when SIGTERM comes is finished.
stop_during_an_answer() {
  curl -sN "http://127.0.0.1:$port/api/generate" \
    -d '{"model":"quire-demo","prompt":"Tell me a story.","options":{"num_predict":200,"ignore_eos":true}}' >"$work/stream" &
  local client=$!
  until grep -q response "$work/stream" 2>/dev/null; do kill -0 $client; sleep 0.05; done
  stop
  wait $client
  tail -n 1 "$work/stream" | grep -q '"done":true'
  echo "SIGTERM: the running answer was finished, exit status 0"
}

# The budget of models is within the container's memory, not the machine's.
check_limits() {
  local limit=$((768 << 20)) budget
  "${podman[@]}" run --rm --memory $limit "${options[@]}" "$1" --version >/dev/null 2>"$work/refused" ||
    { echo "NOT TESTED: limits of memory: $(tail -n 1 "$work/refused")"; return 0; }
  start "$1" --memory $limit --cpus 1
  "${podman[@]}" logs "$name" 2>&1 | grep -o 'model memory budget.*' >"$work/budget"
  cat "$work/budget"
  budget=$(sed -n 's/.*memory_bytes=\([0-9]*\).*/\1/p' "$work/budget")
  [ "$budget" -gt 0 ] && [ "$budget" -lt $limit ]
  ask
  stop
}

start_registry() {
  registry_port=$(free_port)
  cat >"$work/registry.yml" <<YAML
version: 0.1
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: "127.0.0.1:$registry_port"}
YAML
  docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
  registry=$!
  until curl -fs "http://127.0.0.1:$registry_port/v2/" >/dev/null; do kill -0 $registry; sleep 0.1; done
}

id_of() { "${podman[@]}" image inspect --format '{{.Id}}' "$1"; }

# push_and_pull ARCHITECTURE...: pushes TAG, of one architecture or a list; what is pulled for each is the
# image that was built.
push_and_pull() {
  local remote=127.0.0.1:$registry_port/quire:now architecture built=$tag
  if [ $# -gt 1 ]; then
    "${buildah[@]}" manifest push -q --all --tls-verify=false "$tag" "docker://$remote"
  else
    "${podman[@]}" push -q --tls-verify=false "$tag" "$remote"
  fi
  for architecture in "$@"; do
    [ $# = 1 ] || built=$tag-$architecture
    "${podman[@]}" pull -q --tls-verify=false --arch "$architecture" "$remote" >/dev/null
    [ "$(id_of "$remote")" = "$(id_of "$built")" ]
    [ "$("${podman[@]}" image inspect --format '{{.Architecture}}' "$remote")" = "$architecture" ]
    "${podman[@]}" rmi "$remote" >/dev/null
    echo "pushed to a registry and pulled from it for $architecture: the same image"
  done
}

here_architecture=$(dpkg --print-architecture)
architectures=("$here_architecture") image=$tag
if [ $# -gt 1 ]; then
  architectures=(amd64 arm64) image=$tag-$here_architecture
  root=any-arm64 start_emulation
fi
"$here/build.sh" "$@" "$tag"
for architecture in "${architectures[@]}"; do
  one=$image
  [ $# = 1 ] || one=$tag-$architecture
  say "$one"
  check_files "$one" "$one-without-model"
  self_test "$one"
  start "$one"
  ask
  if [ "$architecture" = "$here_architecture" ]; then
    stop_during_an_answer
    check_limits "$one"
  else
    stop
  fi
done
say "registry"
start_registry
push_and_pull "${architectures[@]}"
echo "== passed"
