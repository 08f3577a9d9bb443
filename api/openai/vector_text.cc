#include "api/openai/vector_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <utility>

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

void AppendBase64(std::string& out, std::span<const float> vector) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = 0;  // of at most three bytes
  int bytes = 0;
  const auto digit = [&](int place) { out += kDigits[(bits >> (18 - 6 * place)) & 63U]; };
  out += '"';
  for (const float value : vector) {
    for (int shift = 0; shift < 32; shift += 8) {
      bits |= ((std::bit_cast<uint32_t>(value) >> shift) & 0xFFU) << (16 - 8 * bytes);
      if (++bytes < 3) continue;
      for (int place = 0; place < 4; ++place) digit(place);
      bits = 0;
      bytes = 0;
    }
  }
  if (bytes > 0) {
    for (int place = 0; place <= bytes; ++place) digit(place);
    out.append(static_cast<size_t>(3 - bytes), '=');
  }
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
      return AppendBase64(out, vector);
    case VectorType::kBinary:
    case VectorType::kUbinary:
      return AppendSigns(out, vector, type == VectorType::kBinary);
  }
}

}  // namespace quire::api
