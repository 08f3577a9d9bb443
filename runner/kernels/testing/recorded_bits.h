// For the kernel tests: results whose bits are recorded, because they are those of every CPU that has fused
// multiply-adds, on x86-64 and on arm64.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels::test {

// FNV-1a of the bytes of all floats that it was given.
class BitHash {
 public:
  void Add(std::span<const float> values) {
    for (const std::byte byte : std::as_bytes(values)) {
      hash_ = (hash_ ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
    }
  }
  std::string text() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash_));
    return text;
  }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

// Runs compute(hash) with every instruction set of this machine that has fused multiply-adds.
template <class Compute>
void ExpectBits(const char* recorded, Compute&& compute) {
  ForEachInstructionSet([&] {
    const int64_t targets = hwy::SupportedTargets() | HWY_STATIC_TARGET;
    if ((targets & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) == 0) return;
    BitHash hash;
    compute(hash);
    EXPECT_EQ(recorded, hash.text());
  });
}

}  // namespace quire::runner::kernels::test
