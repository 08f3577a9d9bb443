#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

constexpr const char* kCharsmap = "tokenizer.ggml.precompiled_charsmap";

// The six bits that a character of base64 stands for.
std::optional<uint32_t> SixBits(std::string_view character) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t at = character.size() == 1 ? kAlphabet.find(character[0]) : std::string_view::npos;
  return at == std::string_view::npos ? std::nullopt : std::optional(static_cast<uint32_t>(at));
}

}  // namespace

api::Result<GgufEdits> DetectCharsmap(const GgufView& view) {
  GgufEdits edits;
  const auto* elements = view.Array(kCharsmap);
  if (elements == nullptr || elements->empty() || !elements->front().is_string()) return edits;
  std::vector<int64_t> bytes;
  bytes.reserve(elements->size() / 4 * 3 + 3);
  uint32_t bits = 0;
  size_t digits = 0;
  for (; digits < elements->size(); ++digits) {
    const auto& element = (*elements)[digits];
    if (!element.is_string()) return Contradiction(kCharsmap, "strings and numbers");
    const std::string& character = element.get_ref<const std::string&>();
    if (character == "=") break;
    const auto six = SixBits(character);
    if (!six) return Contradiction(kCharsmap, fmt::format("element {} is no character of base64", digits));
    bits = bits << 6U | *six;
    const size_t have = (digits % 4) * 2;  // bits that a byte still lacks after the first digit of four
    if (digits % 4 != 0) bytes.push_back(static_cast<int64_t>(bits >> (6 - have) & 0xFFU));
  }
  for (size_t i = digits; i < elements->size(); ++i) {
    if ((*elements)[i] != "=" || i - digits > 1) return Contradiction(kCharsmap, "goes on behind its end");
  }
  edits.Set(kCharsmap, std::move(bytes), "base64, a character in each element, read as bytes");
  return edits;
}

}  // namespace quire::runner::weights
