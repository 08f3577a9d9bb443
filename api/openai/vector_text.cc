#include "api/openai/vector_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <utility>

#include "api/base/base64.h"

namespace quire::api {
namespace {

constexpr auto kVectorTypeNames =
    std::to_array<std::pair<std::string_view, VectorType>>({{"float", VectorType::kFloat},
                                                            {"base64", VectorType::kBase64},
                                                            {"binary", VectorType::kBinary},
                                                            {"ubinary", VectorType::kUbinary}});

}  // namespace

std::optional<VectorType> VectorTypeOf(std::string_view name) {
  const auto found = std::ranges::find(kVectorTypeNames, name, [](const auto& one) { return one.first; });
  return found == kVectorTypeNames.end() ? std::nullopt : std::optional(found->second);
}

std::string_view VectorTypeName(VectorType type) {
  const auto found = std::ranges::find(kVectorTypeNames, type, [](const auto& one) { return one.second; });
  return found->first;
}

void AppendNumbers(std::string& out, std::span<const float> vector) {
  out += '[';
  for (size_t i = 0; i < vector.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i > 0 ? "," : "", vector[i]);
  }
  out += ']';
}

void AppendFloats(std::string& out, std::span<const float> vector) {
  static_assert(std::endian::native == std::endian::little);
  out += '"';
  AppendBase64(out, {reinterpret_cast<const char*>(vector.data()), vector.size_bytes()});
  out += '"';
}

void AppendSigns(std::string& out, std::span<const float> vector, bool shifted) {
  out += '[';
  for (size_t begin = 0; begin < vector.size(); begin += 8) {
    int byte = 0;
    for (size_t i = begin; i < begin + 8; ++i) {
      byte = 2 * byte + (i < vector.size() && vector[i] > 0 ? 1 : 0);
    }
    fmt::format_to(std::back_inserter(out), "{}{}", begin > 0 ? "," : "", shifted ? byte - 128 : byte);
  }
  out += ']';
}

void AppendVector(std::string& out, std::span<const float> vector, VectorType type) {
  switch (type) {
    case VectorType::kFloat:
      return AppendNumbers(out, vector);
    case VectorType::kBase64:
      return AppendFloats(out, vector);
    case VectorType::kBinary:
    case VectorType::kUbinary:
      return AppendSigns(out, vector, type == VectorType::kBinary);
  }
}

}  // namespace quire::api
