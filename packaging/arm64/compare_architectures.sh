#!/usr/bin/env bash
# packaging/arm64/compare_architectures.sh [MODEL...]: whether the arm64 build computes the bits of the build
# for this machine, for each model (default: those of tests/data and of the folders beside QUIRE_FIXTURES) and
# KV cache type, with the weights as they are stored and, of a Hugging Face folder, also quantized to Q8_0 and
# Q4_K at load. Needs build/release/bin/quire-golden and build/arm64/bin/quire-golden. The exit status is 1
# where a result differs. As many models at a time as there are CPUs.
#
# QUIRE_ARM64_CPUS: the processors that qemu plays, by default one with products of 2x8 bytes, one with dot
# products, one with neither.
set -uo pipefail
cd "$(dirname "$0")/../.."
here=build/release/bin/quire-golden there=build/arm64/bin/quire-golden
sysroot=${QUIRE_ARM64_SYSROOT:-build/arm64-sysroot}
read -ra cpus <<<"${QUIRE_ARM64_CPUS:-max,pauth-impdef=on neoverse-n1 cortex-a72}"
fixtures=${QUIRE_FIXTURES:-../shared/fixtures}

# Prints a line for each comparison: "equal ...", "DIFFERENT: ...", "skipped: ...".
compare() {
  local kv cpu type types=(stored) arguments expected got
  [ ! -d "$1" ] || types+=(Q8_0 Q4_K)
  for kv in i16 f16 q8_0; do
    for type in "${types[@]}"; do
      arguments=("$1" --fingerprint --kv-cache-type $kv --threads 1)
      [ "$type" = stored ] || arguments+=(--quantize "$type")
      if ! expected=$("$here" "${arguments[@]}" 2>&1); then
        printf 'skipped: %s %s %s: %.120s\n' "$1" "$type" $kv "${expected#*: }"
        continue
      fi
      for cpu in "${cpus[@]}"; do
        got=$(qemu-aarch64-static -cpu "$cpu" -L "$sysroot" "$there" "${arguments[@]}" 2>&1)
        if [ "$got" = "$expected" ]; then
          echo "equal: $1 $type $kv $cpu"
        else
          printf 'DIFFERENT: %s %s %s on %s; here: %s; arm64: %s\n' "$1" "$type" $kv "$cpu" "$expected" "$got"
        fi
      done
    done
  done
}
if [ "${1:-}" = --one ]; then compare "$2"; exit 0; fi

models=("$@")
if [ $# = 0 ]; then
  for model in tests/data/{models,tiny}/* tests/data/gguf/*.gguf "$fixtures"/gguf/*_k256.*.gguf "$fixtures"/gguf_quant/*.gguf \
    "$fixtures"-2/models/* "$fixtures"-2/gguf/*.gguf "$fixtures"-2/vision/*_vl; do
    [ -e "$model" ] && models+=("$model")
  done
fi
results=$(mktemp)
trap 'rm -f "$results"' EXIT
printf '%s\0' "${models[@]}" | xargs -0 -n 1 -P "$(nproc)" "$0" --one >"$results"
grep -v '^equal' "$results"
count() { grep -c "^$1" "$results"; }
echo "$(count equal) equal, $(count DIFFERENT) different, $(count skipped) skipped, of ${#models[@]} models"
[ "$(count equal)" != 0 ] && [ "$(count DIFFERENT)" = 0 ]
