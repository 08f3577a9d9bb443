// For the kernel tests: random weights of every type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runner/kernels/matmul.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/weights/block_formats.h"
#include "runner/weights/testing/half_offsets.h"

namespace quire::runner::kernels::test {

inline constexpr auto kTypes = [] {
  std::array<weights::DataType, weights::kBlockFormats.size()> types{};
  for (size_t i = 0; i < types.size(); ++i) types[i] = weights::kBlockFormats[i].type;
  return types;
}();

// A random matrix as it would lie in a file, at an odd address, with the values its bytes stand for.
class TestMatrix {
 public:
  TestMatrix(weights::DataType type, int64_t out, int64_t in, uint32_t seed) : random_(seed) {
    bytes_.push_back(std::byte{0});  // everything behind it is misaligned for any type but int8
    for (int64_t row = 0; row < out; ++row) AppendRow(type, in);
    view_ = {bytes_.data() + 1, type, out, in};
  }

  const Matrix& view() const { return view_; }
  double at(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * view_.in + column)];
  }

 private:
  template <class T>
  void Append(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  // A float16 of about [-2, 2), subnormal now and then.
  uint16_t RandomF16() {
    const uint32_t exponent = random_.Below(8) == 0 ? 0 : 8 + random_.Below(8);
    return static_cast<uint16_t>(random_.Below(2) << 15 | exponent << 10 | random_.Below(1024));
  }
  uint16_t RandomBF16() {
    return static_cast<uint16_t>(random_.Below(2) << 15 | (120 + random_.Below(8)) << 7 | random_.Below(128));
  }
  // Any block type: random bytes, and numbers where numbers must be. What they stand for is Dequantize's
  // affair, which has tests of its own.
  void AppendBlocks(weights::DataType type, int64_t in) {
    const weights::BlockFormat& format = weights::FormatOf(type);
    const size_t begin = bytes_.size();
    for (int64_t block = 0; block < in / format.elements; ++block) {
      const size_t at = bytes_.size();
      for (int i = 0; i < format.bytes; ++i) bytes_.push_back(static_cast<std::byte>(random_.Below(256)));
      for (const size_t offset : weights::test::HalfOffsets(type)) {
        const uint16_t bits = RandomF16();
        std::memcpy(bytes_.data() + at + offset, &bits, sizeof(bits));
      }
      if (type == weights::DataType::kIQ1_M) {  // the nibbles of `d` on top of the words of scales
        const std::byte low = bytes_[at + offsetof(weights::BlockIQ1_M, scales) + 7] & std::byte{0x8F};
        bytes_[at + offsetof(weights::BlockIQ1_M, scales) + 7] = low | std::byte{0x30};
      }
      if (type == weights::DataType::kNVFP4) {
        for (size_t part = 0; part < 4; ++part)
          bytes_[at + part] = static_cast<std::byte>(48 + random_.Below(16));
      }
      if (format.quants.exponent) bytes_[at] = static_cast<std::byte>(120 + random_.Below(8));
    }
    std::vector<float> dequantized(static_cast<size_t>(in));
    weights::Dequantize(type, bytes_.data() + begin, in, dequantized.data());
    values_.insert(values_.end(), dequantized.begin(), dequantized.end());
  }
  void AppendRow(weights::DataType type, int64_t in) {
    if (weights::BlockElements(type) != 1 && type != weights::DataType::kQ8_0) return AppendBlocks(type, in);
    double scale = 0;
    for (int64_t i = 0; i < in; ++i) {
      if (type == weights::DataType::kF32) {
        const float value = random_.Float();
        Append(value);
        values_.push_back(value);
      } else if (type == weights::DataType::kF16) {
        const uint16_t bits = RandomF16();
        Append(bits);
        values_.push_back(F16ToFloat32(bits));
      } else if (type == weights::DataType::kBF16) {
        const uint16_t bits = RandomBF16();
        Append(bits);
        values_.push_back(BF16ToFloat32(bits));
      } else {
        if (i % 32 == 0) {
          const uint16_t bits = RandomF16();
          Append(bits);
          scale = F16ToFloat32(bits);
        }
        const auto quant = static_cast<int8_t>(random_.Below(256));
        Append(quant);
        values_.push_back(scale * quant);
      }
    }
  }

  Random random_;
  std::vector<std::byte> bytes_;
  std::vector<double> values_;
  Matrix view_;
};

}  // namespace quire::runner::kernels::test
