#include "runner/tokenizer/character_map.h"

#include <fmt/format.h>

#include <cstring>

#include "api/base/utf8.h"

namespace quire::runner::tokenizer {
namespace {

constexpr size_t kSequenceBytesMax = 256;  // keeps the search at each place short

// A unit of the double array: its label, whether a value belongs to it, and where its children begin.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1U) != 0; }
uint32_t Label(uint32_t unit) { return unit & (1U << 31 | 0xFFU); }
size_t Offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1U << 9) >> 6); }
size_t Value(uint32_t unit) { return unit & ((1U << 31) - 1); }

std::unexpected<api::Error> BadMap(std::string reason) {
  return api::Fail(api::ErrorCode::kBadModel, std::move(reason));
}

}  // namespace

api::Result<CharacterMap> CharacterMap::Parse(std::span<const std::byte> blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) return BadMap("too short");
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  const auto rest = blob.subspan(sizeof(trie_bytes));
  if (trie_bytes % sizeof(uint32_t) != 0 || trie_bytes == 0 || trie_bytes > rest.size()) {
    return BadMap(fmt::format("a trie of {} bytes in a charsmap of {} bytes", trie_bytes, blob.size()));
  }
  CharacterMap map;
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), rest.data(), trie_bytes);
  const auto strings = rest.subspan(trie_bytes);
  map.replacements_.assign(reinterpret_cast<const char*>(strings.data()), strings.size());
  if (!map.replacements_.empty() && map.replacements_.back() != '\0')
    return BadMap("the last replacement is not terminated");
  for (size_t begin = 0; begin < map.replacements_.size();) {
    const size_t end = map.replacements_.find('\0', begin);
    const std::string_view text = std::string_view(map.replacements_).substr(begin, end - begin);
    if (text.size() > kReplacementBytesMax)
      return BadMap(fmt::format("a replacement of {} bytes", text.size()));
    if (!api::IsValidUtf8(text)) return BadMap("a replacement that is not UTF-8");
    begin = end + 1;
  }
  return map;
}

CharacterMap::Found CharacterMap::Longest(std::string_view text) const {
  Found found;
  size_t at = Offset(units_[0]);
  for (size_t i = 0; i < text.size() && i < kSequenceBytesMax; ++i) {
    at ^= static_cast<uint8_t>(text[i]);
    if (at >= units_.size() || Label(units_[at]) != static_cast<uint8_t>(text[i])) break;
    const bool has_leaf = HasLeaf(units_[at]);
    at ^= Offset(units_[at]);
    if (!has_leaf || at >= units_.size()) continue;
    const size_t value = Value(units_[at]);
    // A sequence ends where a character does; what begins inside a replacement is not one.
    const bool whole = i + 1 == text.size() || !api::IsContinuationByte(text[i + 1]);
    if (!whole || value >= replacements_.size()) continue;
    if (api::IsContinuationByte(replacements_[value])) continue;
    found = {i + 1, std::string_view(replacements_.c_str() + value)};
  }
  return found;
}

std::string CharacterMap::Apply(std::string_view text) const {
  std::string mapped;
  mapped.reserve(text.size());
  while (!text.empty()) {
    const Found found = Longest(text);
    const size_t length = found.length != 0 ? found.length : api::CodePointAt(text).bytes;
    mapped += found.length != 0 ? found.replacement : text.substr(0, length);
    text.remove_prefix(length);
  }
  return mapped;
}

}  // namespace quire::runner::tokenizer
