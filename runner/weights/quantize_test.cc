#include "runner/weights/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/model_files.h"
#include "runner/weights/safetensors.h"
#include "tests/data/test_data.h"

namespace quire::runner::weights {
namespace {

std::vector<float> AsFloat32(DataType type, const std::byte* from, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  Dequantize(type, from, elements, values.data());
  return values;
}

std::vector<float> RoundTrip(DataType type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(RowBytes(type, std::ssize(values)));
  Quantize(type, values, blocks.data());
  return AsFloat32(type, blocks.data(), std::ssize(values));
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return sum;
}

// ---- float16 and bfloat16 ----

TEST(Float32Conversion, RoundAsRecorded) {
  const auto file = MappedFile::Open("tests/data/quants/quant_blocks.safetensors").value();
  std::map<std::string, std::span<const std::byte>> data;
  const auto entries = ParseSafetensors(file.bytes(), file.path()).value();
  for (const SafetensorsEntry& entry : entries) data[entry.name] = entry.data;
  for (const DataType type : {DataType::kF16, DataType::kBF16}) {
    const auto source = data.at(std::string(Name(type)) + ".src"),
               raw = data.at(std::string(Name(type)) + ".raw");
    ASSERT_EQ(source.size(), raw.size() * 2);
    for (size_t i = 0; i < raw.size() / 2; ++i) {
      float value;
      uint16_t expected;
      std::memcpy(&value, source.data() + 4 * i, 4);
      std::memcpy(&expected, raw.data() + 2 * i, 2);
      EXPECT_EQ(type == DataType::kF16 ? Float32ToF16(value) : Float32ToBF16(value), expected) << value;
    }
  }
}

TEST(Float32Conversion, EveryFloat16ComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = F16ToFloat32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat32(Float32ToF16(value))));
    } else {
      ASSERT_EQ(Float32ToF16(value), bits);
    }
  }
  EXPECT_EQ(Float32ToF16(65519.996F), 0x7bff);
  EXPECT_EQ(Float32ToF16(65520.0F), 0x7c00);
  EXPECT_EQ(Float32ToF16(0x1p-25F), 0);
  EXPECT_EQ(Float32ToF16(0x1.000002p-25F), 1);
  EXPECT_EQ(Float32ToF16(0x1.8p-24F), 2);  // a tie, to even
}

// ---- blocks ----

constexpr DataType kBlockTypes[] = {DataType::kQ8_0, DataType::kQ4_0, DataType::kQ4_K, DataType::kQ6_K};

TEST(Quantize, IsForTheseTypes) {
  for (const BlockFormat& format : kBlockFormats) {
    const bool float_type = format.elements == 1;
    const bool block_type = std::ranges::find(kBlockTypes, format.type) != std::end(kBlockTypes);
    EXPECT_EQ(CanQuantizeTo(format.type), float_type || block_type) << format.name;
  }
}

TEST(Quantize, FloatTypesAreRounded) {
  const std::vector<float> values = {0.1F, -1.0F, 3.0F};
  EXPECT_EQ(RoundTrip(DataType::kF32, values), values);
  EXPECT_EQ(RoundTrip(DataType::kF16, values)[0], F16ToFloat32(Float32ToF16(0.1F)));
  EXPECT_EQ(RoundTrip(DataType::kBF16, values)[0], BF16ToFloat32(Float32ToBF16(0.1F)));
}

// Errors of normally distributed weights, as a part of their size: what these types are known to cost.
TEST(Quantize, ErrorsAreOfTheUsualSize) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(256 * 200);
  for (float& value : values) value = normal(random);
  const double size = SquaredError(values, std::vector<float>(values.size()));
  const auto relative = [&](DataType type) {
    return std::sqrt(SquaredError(values, RoundTrip(type, values)) / size);
  };
  EXPECT_LT(relative(DataType::kQ8_0), 0.006);
  EXPECT_LT(relative(DataType::kQ6_K), 0.02);
  EXPECT_LT(relative(DataType::kQ4_K), 0.075);
  EXPECT_LT(relative(DataType::kQ4_0), 0.09);
}

TEST(Quantize, TakesEveryKindOfNumber) {
  std::vector<float> odd(256, 0.0F);
  odd[0] = std::numeric_limits<float>::quiet_NaN();
  odd[1] = std::numeric_limits<float>::infinity();
  odd[2] = -std::numeric_limits<float>::max();
  odd[3] = std::numeric_limits<float>::denorm_min();
  for (const DataType type : kBlockTypes) {
    EXPECT_EQ(RoundTrip(type, std::vector<float>(256, 0.0F)), std::vector<float>(256, 0.0F)) << Name(type);
    for (const float value : {1e-30F, -1e-30F, 1e-6F, 1.0F, -1.0F, 3e4F}) {
      for (const float got : RoundTrip(type, std::vector<float>(256, value))) {
        EXPECT_NEAR(got, value, std::abs(value) * 0.02F + 1e-6F) << Name(type);
      }
    }
    for (const float got : RoundTrip(type, odd)) EXPECT_TRUE(std::isfinite(got)) << Name(type);
  }
}

// The same tensors as llama-quantize made them: no tensor may come out worse.
TEST(QuantizeFixtures, ErrsNoMoreThanLlamaQuantize) {
  QUIRE_FIND_OR_SKIP(source_path, "gguf/lfm2_k256.f16.gguf");
  QUIRE_FIND_OR_SKIP(quantized_folder, "gguf_quant");
  const auto floats = Open(source_path);
  ASSERT_TRUE(floats) << floats.error().message;
  std::map<DataType, int> compared;
  for (const char* preset : {"Q8_0", "Q4_0", "Q4_K_M", "Q6_K"}) {
    const auto quantized = Open(quantized_folder / ("lfm2_k256." + std::string(preset) + ".gguf"));
    ASSERT_TRUE(quantized) << quantized.error().message;
    for (const Tensor& theirs : (*quantized)->tensors()) {
      if (std::ranges::find(kBlockTypes, theirs.type) == std::end(kBlockTypes)) continue;
      const Tensor* source = (*floats)->Find(theirs.name);
      ASSERT_NE(source, nullptr) << theirs.name;
      const auto values = AsFloat32(source->type, source->data.data(), source->elements());
      const double ours = SquaredError(values, RoundTrip(theirs.type, values));
      const double reference =
          SquaredError(values, AsFloat32(theirs.type, theirs.data.data(), theirs.elements()));
      EXPECT_LE(ours, reference) << preset << " " << theirs.name << ": " << std::sqrt(ours / reference);
      ++compared[theirs.type];
    }
  }
  for (const DataType type : kBlockTypes) EXPECT_GE(compared[type], 10) << Name(type);
}

}  // namespace
}  // namespace quire::runner::weights
