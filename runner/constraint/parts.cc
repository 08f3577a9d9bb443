#include "runner/constraint/parts.h"

#include <utility>

namespace quire::runner::constraint {
namespace {

constexpr uint8_t kSpecialLead = 0xFF;  // never in UTF-8
constexpr uint8_t kTextMax = 0xF7;      // bytes that vocabularies have as text: UTF-8 and its fragments

PartRef Make(Part part) { return std::make_shared<const Part>(std::move(part)); }

// A special token's bytes: the lead, then its id in digits that lie between text and lead.
constexpr uint32_t kSpecialBase = kSpecialLead - kTextMax - 1;
constexpr int kSpecialDigits = 12;  // kSpecialBase to this power is more than any id

// Where the search for `marker` stands after the text that `matched` bytes of it end and then `byte`.
uint32_t Advance(std::string_view marker, const std::vector<uint32_t>& failure, uint32_t matched, char byte) {
  while (matched > 0 && marker[matched] != byte) matched = failure[matched - 1];
  return marker[matched] == byte ? matched + 1 : 0;
}

std::vector<uint32_t> Failures(std::string_view marker) {
  std::vector<uint32_t> failure(marker.size());
  for (size_t i = 1; i < marker.size(); ++i) {
    failure[i] = Advance(marker, failure, failure[i - 1], marker[i]);
  }
  return failure;
}

// The nodes of a search: what is matched so far plus 2; the whole of it is node 1. `may_end_within`: the text
// may end before the marker, and does not go through it.
PartRef Search(std::string_view marker, bool may_end_within) {
  const auto failure = Failures(marker);
  Part::Graph graph{.nodes = static_cast<uint32_t>(marker.size()) + 2, .edges = {{0, 2, nullptr}}};
  for (uint32_t matched = 0; matched < marker.size(); ++matched) {
    if (may_end_within) graph.edges.push_back({matched + 2, 1, nullptr});
    std::vector<Part::Bytes> by_target(marker.size() + 1);
    for (int byte = 0; byte <= 0xFF; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const bool of_marker = marker.find(static_cast<char>(b)) != std::string_view::npos;
      if (b > kTextMax && !of_marker) continue;
      const uint32_t next = Advance(marker, failure, matched, static_cast<char>(b));
      // The bytes of special tokens occur only as the marker, whole.
      if (b > kTextMax && next == 0) continue;
      Part::Bytes& bytes = by_target[next];
      if (!bytes.empty() && bytes.back().last + 1 == byte) {
        bytes.back().last = b;
      } else {
        bytes.push_back({b, b});
      }
    }
    for (uint32_t next = 0; next <= marker.size(); ++next) {
      if (by_target[next].empty() || (may_end_within && next == marker.size())) continue;
      graph.edges.push_back(
          {matched + 2, next == marker.size() ? 1 : next + 2, Bytes(std::move(by_target[next]))});
    }
  }
  return Make({std::move(graph)});
}

}  // namespace

PartRef Bytes(Part::Bytes ranges) { return Make({std::move(ranges)}); }
PartRef Byte(uint8_t first, uint8_t last) { return Bytes({{first, last}}); }
PartRef Literal(std::string_view text) { return Make({std::string(text)}); }
PartRef Call(uint32_t rule) { return Make({Part::Call{rule}}); }
PartRef Automaton(std::shared_ptr<const Dfa> dfa) { return Make({std::move(dfa)}); }

PartRef Nothing() {
  static const PartRef nothing = Literal("");
  return nothing;
}

PartRef Never() {
  static const PartRef never = Bytes({});
  return never;
}

bool IsNever(const PartRef& part) { return part == Never(); }

PartRef Sequence(std::vector<PartRef> parts) {
  if (parts.empty()) return Nothing();
  for (const PartRef& part : parts) {
    if (IsNever(part)) return Never();
  }
  if (parts.size() == 1) return parts.front();
  Part::Graph graph{.nodes = static_cast<uint32_t>(parts.size()) + 1, .edges = {}};
  uint32_t at = 0;
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const uint32_t to = i + 1 == parts.size() ? 1 : i + 2;
    graph.edges.push_back({at, to, std::move(parts[i])});
    at = to;
  }
  return Make({std::move(graph)});
}

PartRef Choice(std::vector<PartRef> parts) {
  std::erase_if(parts, IsNever);
  if (parts.empty()) return Never();
  if (parts.size() == 1) return parts.front();
  Part::Graph graph;
  for (PartRef& part : parts) graph.edges.push_back({0, 1, std::move(part)});
  return Make({std::move(graph)});
}

PartRef Optional(PartRef part) { return Choice({Nothing(), std::move(part)}); }

PartRef Repeat(const PartRef& part, uint32_t min, std::optional<uint32_t> max) {
  if (max && (*max == 0 || *max < min)) return *max == 0 && min == 0 ? Nothing() : Never();
  if (IsNever(part)) return min == 0 ? Nothing() : Never();
  // Nodes 0, 2, 3, ... after so many; every one from `min` on may end.
  Part::Graph graph;
  uint32_t at = 0;
  const uint32_t counted = max ? *max : min;
  for (uint32_t i = 0; i < counted; ++i) {
    if (i >= min) graph.edges.push_back({at, 1, nullptr});
    graph.edges.push_back({at, graph.nodes, part});
    at = graph.nodes++;
  }
  if (!max) {
    const uint32_t loop = graph.nodes++;
    graph.edges.push_back({at, loop, nullptr});
    graph.edges.push_back({loop, loop, part});
    at = loop;
  }
  graph.edges.push_back({at, 1, nullptr});
  return Make({std::move(graph)});
}

std::string SpecialTokenBytes(api::TokenId id) {
  std::string bytes(1, static_cast<char>(kSpecialLead));
  auto rest = static_cast<uint32_t>(id);
  for (int digit = 0; digit < kSpecialDigits; ++digit) {
    bytes += static_cast<char>(kTextMax + 1 + rest % kSpecialBase);
    rest /= kSpecialBase;
  }
  return bytes;
}

PartRef SpecialToken(api::TokenId id) { return Literal(SpecialTokenBytes(id)); }
PartRef FreeText() { return Repeat(Byte(0, kTextMax), 0, std::nullopt); }
PartRef TextUntil(std::string_view marker) { return Search(marker, false); }
PartRef TextWithout(std::string_view marker) { return Search(marker, true); }

}  // namespace quire::runner::constraint
