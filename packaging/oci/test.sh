#!/usr/bin/env bash
# packaging/oci/test.sh TARBALL.tar.gz: builds the images and checks them as a user would run them: size, self-test with a
# read-only root file system, an answer, the health check, SIGTERM during an answer, and a registry's round trip. Needs buildah,
# podman and docker-registry. In a container without namespaces of its own:
#   QUIRE_BUILDAH="buildah --storage-driver vfs" QUIRE_BUILDAH_BUD="--isolation chroot"
#   QUIRE_PODMAN="podman --cgroup-manager cgroupfs --runtime runc --storage-driver vfs"
#   QUIRE_PODMAN_RUN="--network host --ulimit nofile=1024:1024 --ulimit nproc=1000:1000"
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tarball=$(realpath "${1:?usage: test.sh TARBALL.tar.gz}")
tag=localhost/quire-test:now
read -ra podman <<<"${QUIRE_PODMAN:-podman}"
read -ra run_options <<<"${QUIRE_PODMAN_RUN:-}"
bytes_max=$((40 << 20))
work=$(mktemp -d)
name=quire-test-$$
registry=
clean() {
  "${podman[@]}" rm -f "$name" >/dev/null 2>&1 || true
  [ -z "$registry" ] || kill "$registry" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

"$here/build.sh" "$tarball" "$tag"
size=$("${podman[@]}" image inspect --format '{{.Size}}' "$tag-without-model")
echo "without the model: $size bytes"
[ "$size" -le "$bytes_max" ] || { echo "larger than $bytes_max bytes" >&2; exit 1; }
[ "$("${podman[@]}" image inspect --format '{{.User}}' "$tag")" = 65532:65532 ]
"${podman[@]}" image inspect --format '{{.HealthCheck.Test}}' "$tag" | grep -q '/usr/bin/quire ready'

options=(--read-only --cap-drop=ALL --security-opt=no-new-privileges "${run_options[@]}")
status=0
"${podman[@]}" run --rm "${options[@]}" "$tag" serve --selftest || status=$?
[ $status = 0 ] || [ $status = 11 ] || { echo "the self-test failed: $status" >&2; exit 1; }

port=$(free_port)
mkdir -m 777 "$work/models"
"${podman[@]}" run -d --name "$name" "${options[@]}" --tmpfs /tmp -v "$work/models:/models" -e "OLLAMA_HOST=127.0.0.1:$port" \
  "$tag" >/dev/null
tries=0
until "${podman[@]}" exec "$name" /usr/bin/quire ready 2>/dev/null; do
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { "${podman[@]}" logs "$name"; exit 1; }
  sleep 0.2
done
echo "the health check passes"
answer=$("${podman[@]}" exec "$name" /usr/bin/quire run quire-demo "What is a prefix cache?")
echo "$answer"
[[ $answer == "A prefix cache"* ]]
"${podman[@]}" logs "$name" 2>&1 | grep -i 'confined without' || echo "the runner's sandbox is complete"

# An answer that runs when SIGTERM comes is finished.
curl -sN "http://127.0.0.1:$port/api/generate" \
  -d '{"model":"quire-demo","prompt":"Tell me a story.","options":{"num_predict":200,"ignore_eos":true}}' >"$work/stream" &
client=$!
until grep -q response "$work/stream" 2>/dev/null; do kill -0 $client; sleep 0.05; done
"${podman[@]}" stop -t 60 "$name" >/dev/null
wait $client
tail -n 1 "$work/stream" | grep -q '"done":true'
[ "$("${podman[@]}" inspect --format '{{.State.ExitCode}}' "$name")" = 0 ]
echo "SIGTERM: the running answer was finished, exit status 0"

port=$(free_port)
cat >"$work/registry.yml" <<YAML
version: 0.1
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: "127.0.0.1:$port"}
YAML
docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
registry=$!
until curl -fs "http://127.0.0.1:$port/v2/" >/dev/null; do kill -0 $registry; sleep 0.1; done
"${podman[@]}" push -q --tls-verify=false "$tag" "127.0.0.1:$port/quire:now"
"${podman[@]}" pull -q --tls-verify=false "127.0.0.1:$port/quire:now" >/dev/null
[ "$("${podman[@]}" image inspect --format '{{.Id}}' "127.0.0.1:$port/quire:now")" = \
  "$("${podman[@]}" image inspect --format '{{.Id}}' "$tag")" ]
"${podman[@]}" rmi -f "127.0.0.1:$port/quire:now" >/dev/null 2>&1 || true
echo "pushed to a registry and pulled from it: the same image"
