// SHA-256 (FIPS 180-4) of pixels. api/base/sha256.h is OpenSSL's, which reads a file when it starts and is
// not part of a runner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire::runner::images {

class PixelDigest {
 public:
  void Update(std::span<const uint8_t> bytes);
  // REQUIRES: called once, last.
  std::array<uint8_t, 32> Finish();

 private:
  void AddBlock(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_ = {};  // bytes that do not fill one yet
  uint64_t bytes_ = 0;
};

}  // namespace quire::runner::images
