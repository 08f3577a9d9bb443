// Element types of the KV cache.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace quire::api {

enum class KvType : uint8_t { kF32, kF16, kBF16, kQ8_0, kI16 };

inline constexpr std::array<std::pair<std::string_view, KvType>, 5> kKvTypes = {{
    {"f32", KvType::kF32},
    {"f16", KvType::kF16},
    {"bf16", KvType::kBF16},
    {"q8_0", KvType::kQ8_0},
    {"i16", KvType::kI16},
}};

// Half of f32's memory, products of integers, and errors of f16's size (docs/numerics.md).
inline constexpr KvType kDefaultKvType = KvType::kI16;

inline constexpr std::string_view kKvTypeNames = "i16, f16, bf16, q8_0 or f32";

// The type of this name, in lower case; nothing for any other name.
constexpr std::optional<KvType> ParseKvType(std::string_view name) {
  for (const auto& [known, type] : kKvTypes) {
    if (known == name) return type;
  }
  return std::nullopt;
}

constexpr std::string_view NameOf(KvType type) {
  for (const auto& [name, known] : kKvTypes) {
    if (known == type) return name;
  }
  return {};
}

}  // namespace quire::api
