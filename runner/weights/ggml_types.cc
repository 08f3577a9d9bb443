#include "runner/weights/ggml_types.h"

#include <algorithm>
#include <array>
#include <string>

#include "runner/weights/block_formats.h"

namespace quire::runner::weights {
namespace {

// Those that this build does not read.
constexpr auto kOthers = std::to_array<GgmlType>({
    {9, "Q8_1", 32, 36, {}},
    {15, "Q8_K", 256, 292, {}},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {kGgmlI32, "I32", 1, 4, {}},
    {kGgmlI64, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
});

constexpr auto kGgmlTypes = [] {
  std::array<GgmlType, kBlockFormats.size() + kOthers.size()> types{};
  auto to = std::ranges::copy(kOthers, types.begin()).out;
  for (const BlockFormat& format : kBlockFormats) {
    *to++ = {format.ggml_id, format.name, format.elements, format.bytes, format.type};
  }
  return types;
}();

struct FileType {
  int64_t id;
  std::string_view name;
};

constexpr auto kFileTypes = std::to_array<FileType>({
    {0, "F32"},     {1, "F16"},     {2, "Q4_0"},     {3, "Q4_1"},    {7, "Q8_0"},     {8, "Q5_0"},
    {9, "Q5_1"},    {10, "Q2_K"},   {11, "Q3_K_S"},  {12, "Q3_K_M"}, {13, "Q3_K_L"},  {14, "Q4_K_S"},
    {15, "Q4_K_M"}, {16, "Q5_K_S"}, {17, "Q5_K_M"},  {18, "Q6_K"},   {19, "IQ2_XXS"}, {20, "IQ2_XS"},
    {21, "Q2_K_S"}, {22, "IQ3_XS"}, {23, "IQ3_XXS"}, {24, "IQ1_S"},  {25, "IQ4_NL"},  {26, "IQ3_S"},
    {27, "IQ3_M"},  {28, "IQ2_S"},  {29, "IQ2_M"},   {30, "IQ4_XS"}, {31, "IQ1_M"},   {32, "BF16"},
    {36, "TQ1_0"},  {37, "TQ2_0"},  {38, "MXFP4"},   {39, "NVFP4"},
});

}  // namespace

const GgmlType* FindGgmlType(uint32_t id) {
  const auto* found = std::ranges::find(kGgmlTypes, id, &GgmlType::id);
  return found == kGgmlTypes.end() ? nullptr : found;
}

std::optional<int64_t> GgufFileTypeNamed(std::string_view name) {
  const auto* found = std::ranges::find(kFileTypes, name, &FileType::name);
  return found == kFileTypes.end() ? std::nullopt : std::optional(found->id);
}

std::string_view GgufFileTypeName(int64_t file_type) {
  const auto* found = std::ranges::find(kFileTypes, file_type, &FileType::id);
  return found == kFileTypes.end() ? std::string_view() : found->name;
}

int64_t GgufFileTypeOf(DataType type) {
  // Files that are mainly of one K type are named after their quantization preset: "Q4_K_M".
  const std::string name(Name(type));
  const auto id = GgufFileTypeNamed(name);
  return id ? *id : *GgufFileTypeNamed(name + "_M");
}

}  // namespace quire::runner::weights
