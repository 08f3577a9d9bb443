#include "runner/weights/block_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <vector>

#include "runner/weights/float_bits.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/safetensors.h"
#include "runner/weights/scale_bits.h"

namespace quire::runner::weights {
namespace {

class RecordedBlocks {
 public:
  RecordedBlocks() : file_(MappedFile::Open("tests/data/quants/quant_blocks.safetensors").value()) {
    const auto entries = ParseSafetensors(file_.bytes(), file_.path());
    for (const SafetensorsEntry& entry : entries.value()) entries_.emplace(entry.name, entry);
  }

  std::span<const std::byte> Bytes(const std::string& name) const { return entries_.at(name).data; }
  std::vector<float> Floats(const std::string& name) const {
    const auto data = Bytes(name);
    std::vector<float> values(data.size() / sizeof(float));
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  }

 private:
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> entries_;
};

// Bit for bit what the reference implementation gives, for random blocks (zero, negative and subnormal scales
// among them) and for quantized ones.
TEST(BlockFormats, DequantizeToTheRecordedValues) {
  const RecordedBlocks recorded;
  size_t values = 0;
  for (const BlockFormat& format : kBlockFormats) {
    if (format.type == DataType::kF32) continue;
    const std::string name(format.name);
    const auto raw = recorded.Bytes(name + ".raw");
    const std::vector<float> expected = recorded.Floats(name + ".f32");
    ASSERT_EQ(raw.size(), RowBytes(format.type, std::ssize(expected))) << name;
    std::vector<float> dequantized(expected.size());
    Dequantize(format.type, raw.data(), std::ssize(expected), dequantized.data());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(dequantized[i]), std::bit_cast<uint32_t>(expected[i]))
          << name << " element " << i << ": " << dequantized[i] << ", not " << expected[i];
    }
    values += expected.size();
  }
  EXPECT_EQ(values, 63'150U);
}

TEST(BlockFormats, DequantizeAtAnyAddressAndInPieces) {
  const RecordedBlocks recorded;
  for (const BlockFormat& format : kBlockFormats) {
    if (format.type == DataType::kF32) continue;
    const auto raw = recorded.Bytes(std::string(format.name) + ".raw");
    const std::vector<float> expected = recorded.Floats(std::string(format.name) + ".f32");
    std::vector<std::byte> shifted = {std::byte{0}};
    shifted.insert(shifted.end(), raw.begin(), raw.end());
    const auto elements = static_cast<size_t>(format.elements);
    for (size_t block = 0; block < expected.size() / elements; ++block) {
      std::vector<float> dequantized(elements);
      Dequantize(format.type, shifted.data() + 1 + block * static_cast<size_t>(format.bytes), format.elements,
                 dequantized.data());
      ASSERT_EQ(std::memcmp(dequantized.data(), expected.data() + block * elements, elements * sizeof(float)),
                0)
          << format.name << " block " << block;
    }
  }
}

TEST(BlockFormats, GroupScalesPackAndUnpack) {
  GroupScales scales{};
  for (uint8_t i = 0; i < 8; ++i) {
    scales.scale[i] = static_cast<uint8_t>(63 - 7 * i);
    scales.min_offset[i] = static_cast<uint8_t>(5 + 8 * i - i);
  }
  std::array<std::byte, 12> packed{};
  PackGroupScales(scales, packed.data());
  const GroupScales unpacked = UnpackGroupScales(packed.data());
  EXPECT_EQ(unpacked.scale, scales.scale);
  EXPECT_EQ(unpacked.min_offset, scales.min_offset);
}

}  // namespace
}  // namespace quire::runner::weights
