#!/usr/bin/env bash
# packaging/arm64/compare_architectures.sh [MODEL...]: whether the arm64 build computes the bits of the build for this
# machine, for each model (default: those of tests/data and of the folders beside QUIRE_FIXTURES) and KV cache type. Needs
# build/release/bin/quire-golden and build/arm64/bin/quire-golden. The exit status is 1 where a result differs.
#
# QUIRE_ARM64_CPUS: the processors that qemu plays, by default one with products of 2x8 bytes, one with dot products, one
# with neither.
set -uo pipefail
cd "$(dirname "$0")/../.."
here=build/release/bin/quire-golden there=build/arm64/bin/quire-golden
sysroot=${QUIRE_ARM64_SYSROOT:-build/arm64-sysroot}
read -ra cpus <<<"${QUIRE_ARM64_CPUS:-max,pauth-impdef=on neoverse-n1 cortex-a72}"
fixtures=${QUIRE_FIXTURES:-../shared/fixtures}
models=("$@")
if [ $# = 0 ]; then
  for model in tests/data/models/* tests/data/gguf/*.gguf "$fixtures"/gguf_quant/*.gguf "$fixtures"-2/models/* "$fixtures"-2/gguf/*.gguf; do
    [ -e "$model" ] && models+=("$model")
  done
fi
equal=0 different=0 skipped=0
for model in "${models[@]}"; do
  for kv in f16 q8_0; do
    if ! expected=$("$here" "$model" --fingerprint --kv-cache-type $kv --threads 1 2>&1); then
      echo "skipped: $model $kv: ${expected##*: }"
      skipped=$((skipped + 1))
      continue
    fi
    for cpu in "${cpus[@]}"; do
      got=$(qemu-aarch64-static -cpu "$cpu" -L "$sysroot" "$there" "$model" --fingerprint --kv-cache-type $kv --threads 1 2>&1)
      if [ "$got" = "$expected" ]; then
        equal=$((equal + 1))
      else
        different=$((different + 1))
        printf 'DIFFERENT: %s %s on %s\n  here:  %s\n  arm64: %s\n' "$model" "$kv" "$cpu" "$expected" "$got"
      fi
    done
  done
done
echo "$equal equal, $different different, $skipped skipped"
[ "$different" = 0 ]
