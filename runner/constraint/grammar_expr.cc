#include "runner/constraint/grammar_expr.h"

#include <utility>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr uint8_t kSpecialLead = 0xFF;  // never in UTF-8

ExprRef Make(Expr expr) { return std::make_shared<const Expr>(std::move(expr)); }

// A special token's bytes: the lead, then its id in digits that lie between text and lead.
constexpr uint32_t kSpecialBase = kSpecialLead - kTextByteMax - 1;
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

// The nodes of a search: matched bytes plus 2; the full match is node 1. `may_end_within`: the text
// may end before the marker, and does not go through it. `any_special`: special tokens may occur in it.
ExprRef Search(std::string_view marker, bool may_end_within, bool any_special) {
  const auto failure = Failures(marker);
  Expr::Graph graph{.nodes = static_cast<uint32_t>(marker.size()) + 2, .edges = {{0, 2, nullptr}}};
  for (uint32_t matched = 0; matched < marker.size(); ++matched) {
    if (may_end_within) graph.edges.push_back({matched + 2, 1, nullptr});
    std::vector<Expr::Bytes> by_target(marker.size() + 1);
    for (int byte = 0; byte <= 0xFF; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const bool of_marker = marker.find(static_cast<char>(b)) != std::string_view::npos;
      if (b > kTextByteMax && !of_marker && !any_special) continue;
      const uint32_t next = Advance(marker, failure, matched, static_cast<char>(b));
      // The bytes of special tokens occur only as the marker, whole.
      if (b > kTextByteMax && next == 0 && !any_special) continue;
      Expr::Bytes& bytes = by_target[next];
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

ExprRef Bytes(Expr::Bytes ranges) { return Make({std::move(ranges)}); }
ExprRef Byte(uint8_t first, uint8_t last) { return Bytes({{first, last}}); }
ExprRef Literal(std::string_view text) { return Make({std::string(text)}); }
ExprRef Call(uint32_t rule) { return Make({Expr::Call{rule}}); }
ExprRef Automaton(std::shared_ptr<const Dfa> dfa) { return Make({std::move(dfa)}); }

ExprRef Nothing() {
  static const ExprRef nothing = Literal("");
  return nothing;
}

ExprRef Never() {
  static const ExprRef never = Bytes({});
  return never;
}

bool IsNever(const ExprRef& expr) { return expr == Never(); }

ExprRef Sequence(std::vector<ExprRef> exprs) {
  if (exprs.empty()) return Nothing();
  CountWork(4 + exprs.size());
  for (const ExprRef& expr : exprs) {
    if (IsNever(expr)) return Never();
  }
  if (exprs.size() == 1) return exprs.front();
  Expr::Graph graph{.nodes = static_cast<uint32_t>(exprs.size()) + 1, .edges = {}};
  uint32_t at = 0;
  for (uint32_t i = 0; i < exprs.size(); ++i) {
    const uint32_t to = i + 1 == exprs.size() ? 1 : i + 2;
    graph.edges.push_back({at, to, std::move(exprs[i])});
    at = to;
  }
  return Make({std::move(graph)});
}

ExprRef Choice(std::vector<ExprRef> exprs) {
  CountWork(4 + exprs.size());
  std::erase_if(exprs, IsNever);
  if (exprs.empty()) return Never();
  if (exprs.size() == 1) return exprs.front();
  Expr::Graph graph;
  for (ExprRef& expr : exprs) graph.edges.push_back({0, 1, std::move(expr)});
  return Make({std::move(graph)});
}

ExprRef Optional(ExprRef expr) { return Choice({Nothing(), std::move(expr)}); }

ExprRef Repeat(const ExprRef& expr, uint32_t min, std::optional<uint32_t> max) {
  if (max && (*max == 0 || *max < min)) return *max == 0 && min == 0 ? Nothing() : Never();
  if (IsNever(expr)) return min == 0 ? Nothing() : Never();
  // Nodes 0, 2, 3, ... after this many; every one from `min` on may end.
  Expr::Graph graph;
  uint32_t at = 0;
  const uint32_t counted = max ? *max : min;
  CountWork(4 * (uint64_t{counted} + 1));  // also for its memory
  for (uint32_t i = 0; i < counted; ++i) {
    if (i >= min) graph.edges.push_back({at, 1, nullptr});
    graph.edges.push_back({at, graph.nodes, expr});
    at = graph.nodes++;
  }
  if (!max) {
    const uint32_t loop = graph.nodes++;
    graph.edges.push_back({at, loop, nullptr});
    graph.edges.push_back({loop, loop, expr});
    at = loop;
  }
  graph.edges.push_back({at, 1, nullptr});
  return Make({std::move(graph)});
}

std::string SpecialTokenBytes(api::TokenId id) {
  std::string bytes(1, static_cast<char>(kSpecialLead));
  auto rest = static_cast<uint32_t>(id);
  for (int digit = 0; digit < kSpecialDigits; ++digit) {
    bytes += static_cast<char>(kTextByteMax + 1 + rest % kSpecialBase);
    rest /= kSpecialBase;
  }
  return bytes;
}

ExprRef TextUntil(std::string_view marker) { return Search(marker, false, false); }
ExprRef TextWithout(std::string_view marker) { return Search(marker, true, false); }
ExprRef AnythingUntil(std::string_view marker) { return Search(marker, false, true); }
ExprRef AnythingWithout(std::string_view marker) { return Search(marker, true, true); }

}  // namespace quire::runner::constraint
