// Checkpoints in FP8, GPTQ, AWQ and compressed-tensors against the numbers that their formats define. The
// packing here is written from the formats' definitions, code by code.
#include "runner/weights/quantized_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "runner/weights/block_formats.h"
#include "runner/weights/float_bits.h"
#include "runner/weights/metadata_only.h"
#include "runner/weights/packed_model.h"
#include "runner/weights/testing/hostile_files.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = ordered_json;

constexpr int64_t kOut = 40, kIn = 96, kGroup = 32, kGroups = kIn / kGroup;
constexpr const char* kLayer = "model.layers.0.mlp.up_proj";

// A directory with one quantized layer, and the numbers that it means.
struct Layer {
  Json config = {{"model_type", "llama"}};
  Json header = Json::object();
  std::string data;
  std::vector<float> expected = std::vector<float>(kOut * kIn);

  template <class T>
  void Add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape,
           const std::vector<T>& values) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header[kLayer + name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  void Write(const std::filesystem::path& directory) const {
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream(directory / "config.json") << config;
    std::ofstream(directory / "tokenizer.json") << "{}";
    std::ofstream file(directory / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size)) << text << data;
  }
};

// Codes, scales and zero points of a layer.
struct Numbers {
  explicit Numbers(int bits, bool symmetric) : half(1 << (bits - 1)) {
    std::uniform_int_distribution<int> code(0, 2 * half - 1), zero(1, 2 * half - 2);
    std::uniform_real_distribution<float> scale(0.001F, 0.01F);
    for (int& c : codes) c = code(random);
    for (int& z : zeros) z = symmetric ? half : zero(random);
    for (float& s : scales) s = F16ToFloat32(Float32ToF16(scale(random)));
  }
  std::mt19937 random{7};
  int half;
  std::vector<int> codes = std::vector<int>(kOut * kIn), zeros = std::vector<int>(kOut * kGroups);
  std::vector<float> scales = std::vector<float>(kOut * kGroups);

  int code(int64_t o, int64_t i) const { return codes[static_cast<size_t>(o * kIn + i)]; }
  int zero(int64_t o, int64_t g) const { return zeros[static_cast<size_t>(o * kGroups + g)]; }
  float scale(int64_t o, int64_t g) const { return scales[static_cast<size_t>(o * kGroups + g)]; }
  // The layer's numbers, with the group of each input.
  std::vector<float> Values(const std::vector<int32_t>& group_of) const {
    std::vector<float> values;
    values.reserve(codes.size());
    for (int64_t o = 0; o < kOut; ++o) {
      for (int64_t i = 0; i < kIn; ++i) {
        const int64_t g = group_of[static_cast<size_t>(i)];
        values.push_back(static_cast<float>(code(o, i) - zero(o, g)) * scale(o, g));
      }
    }
    return values;
  }
};

std::vector<int32_t> GroupsInOrder() {
  std::vector<int32_t> groups(kIn);
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int32_t>(i / kGroup);
  return groups;
}

// [groups, out], as GPTQ and AWQ store scales.
std::vector<uint16_t> ScalesByGroup(const Numbers& numbers) {
  std::vector<uint16_t> scales;
  for (int64_t g = 0; g < kGroups; ++g) {
    for (int64_t o = 0; o < kOut; ++o) scales.push_back(Float32ToF16(numbers.scale(o, g)));
  }
  return scales;
}

Layer Gptq(int bits, bool symmetric, bool any_order, bool second = false) {
  const Numbers numbers(bits, symmetric);
  const int64_t per = 32 / bits;
  Layer layer;
  layer.config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", bits},
                                         {"group_size", kGroup},   {"sym", symmetric},
                                         {"desc_act", any_order},  {"damp_percent", 0.1}};
  if (second) layer.config["quantization_config"]["checkpoint_format"] = "gptq_v2";
  std::vector<int32_t> groups = GroupsInOrder();
  if (any_order) {
    for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int32_t>(i % kGroups);
  }
  std::vector<uint32_t> codes(static_cast<size_t>(kIn / per * kOut)),
      zeros(static_cast<size_t>(kGroups * kOut / per));
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t i = 0; i < kIn; ++i) {
      codes[static_cast<size_t>(i / per * kOut + o)] |= static_cast<uint32_t>(numbers.code(o, i))
                                                        << (i % per * bits);
    }
    for (int64_t g = 0; g < kGroups; ++g) {
      const auto stored = static_cast<uint32_t>(numbers.zero(o, g) - (second ? 0 : 1));
      zeros[static_cast<size_t>(g * (kOut / per) + o / per)] |= stored << (o % per * bits);
    }
  }
  layer.Add(".qweight", "I32", {kIn / per, kOut}, codes);
  layer.Add(".qzeros", "I32", {kGroups, kOut / per}, zeros);
  layer.Add(".scales", "F16", {kGroups, kOut}, ScalesByGroup(numbers));
  layer.Add(".g_idx", "I32", {kIn}, groups);
  layer.expected = numbers.Values(groups);
  return layer;
}

Layer Awq() {
  const Numbers numbers(4, false);
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // of outputs, from the low bits on
  Layer layer;
  layer.config["quantization_config"] = {{"quant_method", "awq"},
                                         {"bits", 4},
                                         {"group_size", kGroup},
                                         {"zero_point", true},
                                         {"version", "gemm"}};
  std::vector<uint32_t> codes(kIn * kOut / 8), zeros(kGroups * kOut / 8);
  for (int64_t word = 0; word < kOut / 8; ++word) {
    for (int place = 0; place < 8; ++place) {
      const int64_t o = 8 * word + kOrder[place];
      for (int64_t i = 0; i < kIn; ++i) {
        codes[static_cast<size_t>(i * (kOut / 8) + word)] |= static_cast<uint32_t>(numbers.code(o, i))
                                                             << (4 * place);
      }
      for (int64_t g = 0; g < kGroups; ++g) {
        zeros[static_cast<size_t>(g * (kOut / 8) + word)] |= static_cast<uint32_t>(numbers.zero(o, g))
                                                             << (4 * place);
      }
    }
  }
  layer.Add(".qweight", "I32", {kIn, kOut / 8}, codes);
  layer.Add(".qzeros", "I32", {kGroups, kOut / 8}, zeros);
  layer.Add(".scales", "F16", {kGroups, kOut}, ScalesByGroup(numbers));
  layer.expected = numbers.Values(GroupsInOrder());
  return layer;
}

Json CompressedTensors(const char* format, const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"ignore", {"lm_head"}},
          {"kv_cache_scheme", nullptr},
          {"version", "0.11.0"},
          {"config_groups",
           {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"output_activations", nullptr}}}}}};
}

Layer PackedRows(int bits, bool symmetric) {
  const Numbers numbers(bits, symmetric);
  const int64_t per = 32 / bits;
  Layer layer;
  layer.config["quantization_config"] = CompressedTensors("pack-quantized", {{"num_bits", bits},
                                                                             {"type", "int"},
                                                                             {"strategy", "group"},
                                                                             {"group_size", kGroup},
                                                                             {"symmetric", symmetric}});
  std::vector<uint32_t> codes(static_cast<size_t>(kOut * kIn / per)),
      zeros(static_cast<size_t>(kOut / per * kGroups));
  std::vector<uint16_t> scales;
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t i = 0; i < kIn; ++i) {
      codes[static_cast<size_t>(o * (kIn / per) + i / per)] |= static_cast<uint32_t>(numbers.code(o, i))
                                                               << (i % per * bits);
    }
    for (int64_t g = 0; g < kGroups; ++g) {
      scales.push_back(Float32ToF16(numbers.scale(o, g)));
      zeros[static_cast<size_t>(o / per * kGroups + g)] |= static_cast<uint32_t>(numbers.zero(o, g))
                                                           << (o % per * bits);
    }
  }
  layer.Add(".weight_packed", "I32", {kOut, kIn / per}, codes);
  layer.Add(".weight_scale", "F16", {kOut, kGroups}, scales);
  layer.Add(".weight_shape", "I64", {2}, std::vector<int64_t>{kOut, kIn});
  if (!symmetric) layer.Add(".weight_zero_point", "I32", {kOut / per, kGroups}, zeros);
  layer.expected = numbers.Values(GroupsInOrder());
  return layer;
}

// A scale for each output, in bfloat16.
Layer Int8() {
  const Numbers numbers(8, true);
  Layer layer;
  layer.config["quantization_config"] = CompressedTensors(
      "int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}, {"symmetric", true}});
  std::vector<int8_t> codes;
  std::vector<uint16_t> scales;
  for (int64_t o = 0; o < kOut; ++o) {
    scales.push_back(Float32ToBF16(numbers.scale(o, 0)));
    for (int64_t i = 0; i < kIn; ++i) {
      codes.push_back(static_cast<int8_t>(numbers.code(o, i) - 128));
      layer.expected[static_cast<size_t>(o * kIn + i)] =
          static_cast<float>(codes.back()) * BF16ToFloat32(scales.back());
    }
  }
  layer.Add(".weight", "I8", {kOut, kIn}, codes);
  layer.Add(".weight_scale", "BF16", {kOut, 1}, scales);
  return layer;
}

// -1, 0 and 1, four outputs in a byte; one scale, which multiplies or divides.
Layer Ternary(int64_t in, bool divides) {
  Layer layer;
  layer.config["quantization_config"] = {{"quant_method", "bitnet"},
                                         {"linear_class", divides ? "bitlinear" : "autobitlinear"},
                                         {"quantization_mode", "offline"}};
  const float scale = divides ? 8 : 0.375F;
  layer.expected.resize(static_cast<size_t>(kOut * in));
  std::vector<uint8_t> codes(layer.expected.size() / 4);
  std::mt19937 random(5);
  std::uniform_int_distribution<int> any(0, 2);
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const int code = any(random);
      const auto number = static_cast<float>(code - 1);
      layer.expected[static_cast<size_t>(o * in + i)] = divides ? number / scale : number * scale;
      uint8_t& byte = codes[static_cast<size_t>(o % (kOut / 4) * in + i)];
      byte = static_cast<uint8_t>(byte | code << (2 * (o / (kOut / 4))));
    }
  }
  layer.Add(".weight", "U8", {kOut / 4, in}, codes);
  layer.Add(".weight_scale", "BF16", {1}, std::vector<uint16_t>{Float32ToBF16(scale)});
  return layer;
}

// The value of an FP8 code by its definition: sign, 4 bits of exponent with bias 7, 3 of fraction.
float ValueOf(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const auto fraction = static_cast<float>(code & 7) / 8;
  const float size = exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return (code & 0x80) != 0 ? -size : size;
}

// `rows` x `columns` numbers share a scale; a power of two where `exact`.
Layer Fp8(int64_t rows, int64_t columns, const char* scale, Json config, bool exact) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> any(0, 255), power(-8, -3);
  std::uniform_real_distribution<float> real(0.001F, 0.01F);
  Layer layer;
  layer.config["quantization_config"] = std::move(config);
  const int64_t down = (kOut + rows - 1) / rows, across = (kIn + columns - 1) / columns;
  std::vector<float> scales;
  for (int64_t i = 0; i < down * across; ++i)
    scales.push_back(exact ? std::ldexp(1.0F, power(random)) : real(random));
  std::vector<uint8_t> codes;
  for (int64_t o = 0; o < kOut; ++o) {
    for (int64_t i = 0; i < kIn; ++i) {
      auto code = static_cast<uint8_t>(any(random));
      if ((code & 0x7F) == 0x7F) code = 0;
      codes.push_back(code);
      layer.expected[static_cast<size_t>(o * kIn + i)] =
          ValueOf(code) * scales[static_cast<size_t>(o / rows * across + i / columns)];
    }
  }
  layer.Add(".weight", "F8_E4M3", {kOut, kIn}, codes);
  if (down * across == 1) {
    layer.Add(scale, "F32", {}, scales);
  } else {
    layer.Add(scale, "F32", {down, across}, scales);
  }
  return layer;
}

Json DeepSeek() {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {16, 32}}};
}

class QuantizedCheckpoints : public ::testing::Test {
 protected:
  api::Result<std::shared_ptr<const ModelFiles>> Convert(const Layer& layer, int threads = 1) {
    layer.Write(directory_.path());
    auto files = Open(directory_.path());
    if (!files) return files;
    return ConvertCheckpoint(*std::move(files), threads);
  }
  // The layer's weight, which must be of the type.
  std::vector<float> Weights(const Layer& layer, DataType type) {
    const auto files = Convert(layer, 3);
    EXPECT_TRUE(files) << files.error().message;
    if (!files) return {};
    EXPECT_FALSE((*files)->config().contains("quantization_config"));
    EXPECT_TRUE((*files)->raw_tensors().empty());
    const Tensor* tensor = (*files)->Find(std::string(kLayer) + ".weight");
    EXPECT_NE(tensor, nullptr);
    if (tensor == nullptr) return {};
    EXPECT_EQ((*files)->tensors().size(), 1U) << "scales are no weights";
    EXPECT_EQ(Name(tensor->type), Name(type));
    const auto in = static_cast<int64_t>(layer.expected.size()) / kOut;
    EXPECT_EQ(tensor->shape, (std::vector<int64_t>{kOut, in}));
    std::vector<float> values(layer.expected.size());
    for (int64_t row = 0; row < kOut; ++row) {
      Dequantize(tensor->type, tensor->data.data() + static_cast<size_t>(row) * RowBytes(tensor->type, in),
                 in, values.data() + row * in);
    }
    CheckHeadersAndCopy(**files, *tensor);
    return values;
  }
  // Without its weights the layer has the same type and size, and packed the same bytes.
  void CheckHeadersAndCopy(const ModelFiles& converted, const Tensor& tensor) {
    auto headers = MetadataOnly(Open(directory_.path()).value());
    ASSERT_TRUE(headers);
    const auto planned = ConvertCheckpoint(*std::move(headers), 1);
    ASSERT_TRUE(planned) << planned.error().message;
    EXPECT_TRUE((*planned)->metadata_only());
    const Tensor* plan = (*planned)->Find(tensor.name);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(plan->type, tensor.type);
    EXPECT_EQ(plan->data.size(), tensor.data.size());
    const auto file = directory_.path() / "packed.gguf";
    const auto packed = PackHuggingFace(directory_.path(), file);
    ASSERT_TRUE(packed) << packed.error().message;
    const auto copy = Open(file);
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ((*copy)->config(), converted.config());
    const Tensor* other = (*copy)->Find(tensor.name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(other->type, tensor.type);
    EXPECT_TRUE(std::ranges::equal(other->data, tensor.data));
    std::filesystem::remove(file);
  }
  std::string ErrorOf(const Layer& layer) {
    const auto files = Convert(layer);
    EXPECT_FALSE(files) << "accepted";
    return files ? "" : files.error().message;
  }

  testing::TemporaryDirectory directory_;
};

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return a.size() == b.size() ? largest : INFINITY;
}

TEST_F(QuantizedCheckpoints, SymmetricCodesAreTheSameNumbers) {
  for (const auto& [layer, type] : {std::pair{Gptq(4, true, false), DataType::kQ4_0},
                                    {Gptq(4, true, false, true), DataType::kQ4_0},
                                    {Gptq(8, true, false), DataType::kQ8_0},
                                    {PackedRows(4, true), DataType::kQ4_0},
                                    {PackedRows(8, true), DataType::kQ8_0},
                                    {Int8(), DataType::kQ8_0},
                                    {Ternary(256, false), DataType::kTQ2_0},
                                    {Ternary(512, true), DataType::kTQ2_0},
                                    {Ternary(kIn, true), DataType::kF16}}) {
    SCOPED_TRACE(layer.config.dump());
    EXPECT_EQ(Weights(layer, type), layer.expected);
  }
}

// A zero point times a scale is rounded to float16: at most 15 * 0.01 * 2^-11.
TEST_F(QuantizedCheckpoints, OtherZeroPointsAreRoundedToFloat16) {
  for (const Layer& layer :
       {Gptq(4, false, false), Gptq(4, false, false, true), Awq(), PackedRows(4, false)}) {
    SCOPED_TRACE(layer.config.dump());
    EXPECT_LE(LargestDifference(Weights(layer, DataType::kQ4_1), layer.expected), 15 * 0.01 / 2048);
  }
}

TEST_F(QuantizedCheckpoints, GroupsInAnyOrderBecomeFloat16) {
  for (const Layer& layer :
       {Gptq(4, true, true), Gptq(4, false, true), Gptq(8, false, false), PackedRows(8, false)}) {
    SCOPED_TRACE(layer.config.dump());
    std::vector<float> rounded = layer.expected;
    for (float& value : rounded) value = F16ToFloat32(Float32ToF16(value));
    EXPECT_EQ(Weights(layer, DataType::kF16), rounded);
  }
}

TEST_F(QuantizedCheckpoints, Fp8IsRoundedToBfloat16) {
  const Json tensor = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  const Json compressed =
      CompressedTensors("float-quantized", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}});
  for (const bool exact : {true, false}) {
    for (const Layer& layer :
         {Fp8(16, 32, ".weight_scale_inv", DeepSeek(), exact), Fp8(kOut, kIn, ".weight_scale", tensor, exact),
          Fp8(1, kIn, ".weight_scale", compressed, exact),
          Fp8(kOut, kIn, ".weight_scale", compressed, exact)}) {
      SCOPED_TRACE(layer.config.dump());
      std::vector<float> rounded = layer.expected;
      for (float& value : rounded) value = BF16ToFloat32(Float32ToBF16(value));
      EXPECT_TRUE(!exact || rounded == layer.expected);
      EXPECT_EQ(Weights(layer, DataType::kBF16), rounded);
    }
  }
}

TEST_F(QuantizedCheckpoints, AKeyWithAnotherMeaningIsRefusedByItsName) {
  const auto refused = [&](Layer layer, const std::string& key, const Json& value) {
    layer.config["quantization_config"][key] = value;
    EXPECT_THAT(ErrorOf(layer), AllOf(HasSubstr("quantization_config/" + key), HasSubstr("is not supported")))
        << key;
  };
  refused(Gptq(4, true, false), "bits", 3);
  refused(Gptq(4, true, false), "checkpoint_format", "marlin");
  refused(Gptq(4, true, false), "is_marlin_format", true);
  refused(Gptq(4, true, false), "dynamic", {{"-:.*mlp", Json::object()}});
  refused(Gptq(4, true, false), "group_size", 0);
  refused(Awq(), "version", "gemv");
  refused(Ternary(256, false), "quantization_mode", "online");
  refused(Ternary(256, false), "use_rms_norm", true);
  refused(Awq(), "zero_point", false);
  refused(Fp8(16, 32, ".weight_scale_inv", DeepSeek(), true), "fmt", "e5m2");
  refused(Fp8(16, 32, ".weight_scale_inv", DeepSeek(), true), "weight_block_size", {128});
  refused(Int8(), "format", "marlin-24");
  refused(Int8(), "kv_cache_scheme", {{"num_bits", 8}});
  refused(Int8(), "transform_config", {{"config_groups", 1}});
  refused(Int8(), "sparsity_config", {{"format", "sparse-24-bitmask"}});
  Layer inner = Int8();
  inner.config["quantization_config"]["config_groups"]["group_0"]["weights"]["dynamic"] = true;
  EXPECT_THAT(ErrorOf(inner), HasSubstr("quantization_config/config_groups/group_0/weights/dynamic: true"));
  inner = Int8();
  inner.config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 2;
  EXPECT_THAT(ErrorOf(inner), HasSubstr("quantization_config/config_groups/group_0/weights/num_bits: 2"));
}

TEST_F(QuantizedCheckpoints, WhatContradictsItselfIsRefusedByItsTensor) {
  Layer layer = Gptq(4, false, false);
  layer.config["quantization_config"]["sym"] = true;
  EXPECT_THAT(ErrorOf(layer), AllOf(HasSubstr("up_proj.weight"), HasSubstr("a zero point is")));
  layer = Gptq(4, true, true);
  layer.config["quantization_config"]["desc_act"] = false;
  EXPECT_THAT(ErrorOf(layer), HasSubstr("its groups are not in order, but desc_act is false"));
  layer = Gptq(4, true, false);
  layer.header.erase(std::string(kLayer) + ".scales");
  EXPECT_THAT(ErrorOf(layer), HasSubstr("up_proj.scales\" is missing"));
  layer = Gptq(4, true, false);
  layer.config["quantization_config"]["group_size"] = 48;
  EXPECT_THAT(ErrorOf(layer), HasSubstr("up_proj.qzeros\" has the type I32 and the shape [3, 5]"));
  layer = Gptq(4, true, false);
  layer.config["quantization_config"]["bits"] = 8;
  EXPECT_THAT(ErrorOf(layer), HasSubstr("up_proj.qzeros\""));
  layer = Int8();
  layer.Add(".weight_zero_point", "I8", {kOut, 1}, std::vector<int8_t>(kOut));
  EXPECT_THAT(ErrorOf(layer), HasSubstr("up_proj.weight_zero_point\" belongs to no quantized layer"));
  EXPECT_THAT(
      ErrorOf(Fp8(kOut, kIn, ".weight_scale_inv", DeepSeek(), true)),
      HasSubstr("up_proj.weight_scale_inv\" is missing, or no tensor of floats with the shape [3, 3]"));
  layer = Fp8(16, 32, ".weight_scale_inv", DeepSeek(), true);
  layer.data[5] = 0x7F;
  EXPECT_THAT(ErrorOf(layer), HasSubstr("a code is no number"));
  layer = Ternary(256, false);
  layer.data[5] = 0x7F;
  EXPECT_THAT(ErrorOf(layer), HasSubstr("a code is no number"));
  EXPECT_FALSE(PackHuggingFace(directory_.path(), directory_.path() / "packed.gguf"));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "packed.gguf"));
  layer = Gptq(4, true, true);
  const int32_t beyond = 3;
  std::memcpy(layer.data.data() + layer.data.size() - 4, &beyond, 4);
  EXPECT_THAT(ErrorOf(layer), HasSubstr("input 95 is in group 3 of 3"));
}

TEST_F(QuantizedCheckpoints, OtherFilesStayAsTheyAre) {
  const auto files = Open("tests/data/models/llama");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(ConvertCheckpoint(*files, 1).value(), *files);
}

}  // namespace
}  // namespace quire::runner::weights
