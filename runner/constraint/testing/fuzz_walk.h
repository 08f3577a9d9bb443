// What the fuzzers of this folder have in common: bytes as choices, and walks through a compiled grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runner/constraint/grammar.h"
#include "runner/constraint/parse_states.h"

namespace quire::runner::constraint::fuzzing {

// What compiling one input may cost: a tenth of a second even with sanitizers, if every loop counts its work.
inline constexpr uint64_t kUnitsMax = 400'000;

inline void Require(bool condition) {
  if (!condition) std::abort();
}

// The bytes of an input, one after the other; zeros after the last.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}
  bool over() const { return at_ >= bytes_.size(); }
  uint8_t Next() { return over() ? 0 : static_cast<uint8_t>(bytes_[at_++]); }
  uint32_t Below(uint32_t bound) { return Next() % bound; }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

// The text before `separator` and what follows it.
inline std::pair<std::string_view, std::string_view> SplitAt(std::string_view input, char separator) {
  const size_t at = input.find(separator);
  if (at == std::string_view::npos) return {input, {}};
  return {input.substr(0, at), input.substr(at + 1)};
}

// A text that matches, as the choices lead; nothing when they end before it does. Every text on the way must
// be the beginning of one that matches.
inline std::optional<std::string> Walk(const Grammar& grammar, Choices choices) {
  constexpr size_t kBytesMax = 64;
  ParseArena arena;
  ParseStates at{{grammar.start(), kEmptyStack}};
  ParseStates next;
  std::string text;
  bool ends = Close(grammar, arena, at);
  while (text.size() < kBytesMax) {
    const bool stop = choices.over();
    const uint8_t wanted = choices.Next();
    if (ends && (stop || wanted == 0)) return text;
    bool found = false;
    for (int offset = 0; offset < 256 && !found; ++offset) {
      const auto byte = static_cast<uint8_t>(wanted + offset);
      const bool ends_then = Read(grammar, arena, at, byte, next);
      if (next.empty()) continue;
      found = true;
      ends = ends_then;
      text += static_cast<char>(byte);
      std::swap(at, next);
    }
    if (!found) {
      Require(ends || at.size() >= kParseStatesMax);  // all that are followed may wait for calls that are not
      return text;
    }
  }
  return std::nullopt;
}

// Whether the text matches; nothing where the grammar is more ambiguous than is followed.
inline std::optional<bool> Matches(const Grammar& grammar, std::string_view text) {
  ParseArena arena;
  ParseStates at{{grammar.start(), kEmptyStack}};
  ParseStates next;
  bool ends = Close(grammar, arena, at);
  for (const char c : text) {
    if (at.size() >= kParseStatesMax) return std::nullopt;
    ends = Read(grammar, arena, at, static_cast<uint8_t>(c), next);
    if (next.empty()) return false;
    std::swap(at, next);
  }
  return at.size() >= kParseStatesMax ? std::nullopt : std::optional(ends);
}

}  // namespace quire::runner::constraint::fuzzing
