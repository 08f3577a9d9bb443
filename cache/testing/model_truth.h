// Test only. The slow, obviously right account of what a sequence or a snapshot can do: plain tokens and a
// few flags, with the rules of cache/README.md written out per position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/layout.h"
#include "cache/testing/fake_model.h"

namespace quire::cache {

struct Truth {
  explicit Truth(const Layout* of)
      : layout(of), window(of->groups.size(), true), intact_from(of->groups.size(), 0) {}

  Position offset() const { return static_cast<Position>(tokens.size()); }
  bool recurrent() const { return !layout->recurrent.empty(); }

  // The first row of a window group at offset(): the pages that the next token sees are whole, but for what a
  // removal did not move. Of a chunk's first page, the rows of the chunk.
  Position Kept(size_t group) const {
    const AttentionGroup& shape = layout->groups[group];
    const Position oldest = OldestVisible(shape, offset());
    return std::max(shape.chunked ? oldest : oldest - oldest % layout->page_tokens, intact_from[group]);
  }
  bool WindowReaches(size_t group, Position at) const {
    const Position oldest = OldestVisible(layout->groups[group], at);
    if (layout->groups[group].window == 0 || oldest == at) return true;
    return window[group] && Kept(group) <= oldest;
  }
  // All layers can be at `at` <= offset().
  bool Reaches(Position at) const {
    if (at == 0) return true;
    if (recurrent() && (at != offset() || !state)) return false;
    for (size_t g = 0; g < window.size(); ++g) {
      if (!WindowReaches(g, at)) return false;
    }
    return true;
  }
  bool ready() const {
    for (const bool present : window) {
      if (!present) return false;
    }
    return !recurrent() || offset() == 0 || state;
  }
  Position DeepestReachable(Position max_position) const {
    for (Position at = std::min(max_position, offset()); at > 0; --at) {
      if (Reaches(at)) return at;
    }
    return 0;
  }
  void CutTo(Position at) {
    for (size_t g = 0; g < window.size(); ++g) window[g] = at == 0 || WindowReaches(g, at);
    for (Position& row : intact_from) row = std::min(row, at);
    state = at == 0 || (at == offset() && state);
    tokens.resize(static_cast<size_t>(at));
    if (at <= exact_until) exact_until = INT64_MAX;
  }
  bool CanRemove(Position begin, Position end) const {
    const auto in_blocks = [](const AttentionGroup& group) { return group.stride > 1; };
    if (recurrent() || std::ranges::any_of(layout->groups, in_blocks)) return false;
    const Position left = offset() - (end - begin);
    for (size_t g = 0; g < window.size(); ++g) {
      const Position oldest = OldestVisible(layout->groups[g], left);
      const Position source = oldest < begin ? oldest : oldest + (end - begin);
      if (layout->groups[g].window == 0 || oldest == left) continue;
      if (!window[g] || source < Kept(g)) return false;
    }
    return true;
  }
  void Remove(Position begin, Position end) {
    tokens.erase(tokens.begin() + begin, tokens.begin() + end);
    exact_until = offset() <= std::min(exact_until, begin) ? INT64_MAX : std::min(exact_until, begin);
    window.assign(window.size(), true);
    for (size_t g = 0; g < window.size(); ++g) {
      const Position oldest = OldestVisible(layout->groups[g], offset());
      if (begin <= oldest) intact_from[g] = oldest;
    }
  }
  bool exact() const { return exact_until >= offset(); }

  const Layout* layout;
  TokenList tokens;
  bool state = true;                  // the recurrent state is there
  std::vector<bool> window;           // and each window
  std::vector<Position> intact_from;  // [groups]
  Position exact_until = INT64_MAX;
};

}  // namespace quire::cache
