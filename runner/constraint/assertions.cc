#include "runner/constraint/assertions.h"

#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "runner/constraint/automaton.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr uint8_t kFirstAssertion = kTextByteMax + 1;

// What the text so far says about the assertions that may come, and those that came about the text that may
// follow.
struct Context {
  enum class Before : uint8_t { kNothing, kWord, kOther };
  enum class Next : uint8_t {
    kAny,
    kEnd,
    kWord,
    kNoWord
  };  // kNoWord: the end, or a character that is not of a word
  Before before = Before::kNothing;
  Next next = Next::kAny;
  uint8_t escape = 0;  // bytes of an escape that follow; kEscape: the next says how many
  auto operator<=>(const Context&) const = default;
};
constexpr uint8_t kEscape = 0xFF;

std::optional<Context::Next> Both(Context::Next one, Context::Next other) {
  using enum Context::Next;
  if (one == kAny || one == other) return other;
  if (other == kAny) return one;
  if (one == kWord || other == kWord) return std::nullopt;
  return kEnd;
}

std::optional<Context> AfterAssertion(Context at, Assertion assertion) {
  using Next = Context::Next;
  if (at.escape != 0) return std::nullopt;
  if (assertion == Assertion::kBegin) {
    return at.before == Context::Before::kNothing ? std::optional(at) : std::nullopt;
  }
  const bool in_word = at.before == Context::Before::kWord;
  const bool word_follows = (assertion == Assertion::kWordBoundary) != in_word;
  const auto next = Both(at.next, assertion == Assertion::kEnd ? Next::kEnd
                                  : word_follows               ? Next::kWord
                                                               : Next::kNoWord);
  if (!next) return std::nullopt;
  at.next = *next;
  return at;
}

std::optional<Context> AfterByte(Context at, uint8_t byte, bool in_json) {
  if (at.escape == kEscape) {
    at.escape = byte == 'u' ? 4 : 0;
    return at;
  }
  if (at.escape > 0) {
    --at.escape;
    return at;
  }
  const auto c = static_cast<char>(byte);
  const bool word = byte < 0x80 && (api::IsAsciiAlnum(c) || c == '_');
  const bool allowed =
      at.next == Context::Next::kAny || at.next == (word ? Context::Next::kWord : Context::Next::kNoWord);
  if (!allowed) return std::nullopt;
  return Context{.before = word ? Context::Before::kWord : Context::Before::kOther,
                 .escape = in_json && c == '\\' ? kEscape : uint8_t{0}};
}

// The automaton of all texts with assertions that hold.
ExprRef Holding(bool in_json) {
  std::map<Context, uint32_t> nodes = {{Context{}, 0}};
  std::vector<Context> todo = {Context{}};
  Expr::Graph graph;
  const auto find = [&](const Context& context) {
    const auto [found, added] = nodes.try_emplace(context, graph.nodes);
    if (added) {
      ++graph.nodes;
      todo.push_back(context);
    }
    return found->second;
  };
  while (!todo.empty()) {
    const Context at = todo.back();
    todo.pop_back();
    const uint32_t from = nodes.at(at);
    if (at.escape == 0 && at.next != Context::Next::kWord) graph.edges.push_back({from, 1, nullptr});
    for (int byte = 0; byte <= kTextByteMax + 4; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      const auto next = b > kTextByteMax ? AfterAssertion(at, static_cast<Assertion>(b - kFirstAssertion))
                                         : AfterByte(at, b, in_json);
      if (!next) continue;
      const uint32_t to = find(*next);
      graph.edges.push_back({from, to, Byte(b, b)});
    }
  }
  return std::make_shared<const Expr>(Expr{std::move(graph)});
}

}  // namespace

ExprRef AssertionExpr(Assertion assertion) {
  const auto byte = static_cast<uint8_t>(kFirstAssertion + static_cast<uint8_t>(assertion));
  return Byte(byte, byte);
}

api::Result<ExprRef> ResolveAssertions(const ExprRef& expr, bool in_json) {
  const auto written = BuildDfa(*expr);
  if (!written) return std::unexpected(written.error());
  const auto holding = BuildDfa(*Holding(in_json));
  if (!holding) return std::unexpected(holding.error());
  const auto both = Intersect(*written, *holding);
  if (!both) return std::unexpected(both.error());
  // Node 0 is the start, 1 the end.
  Expr::Graph graph{.nodes = static_cast<uint32_t>(both->states()) + 1, .edges = {}};
  const auto node_of = [](StateId state) { return state == 0 ? 0 : state + 1; };
  for (StateId state = 0; state < both->states(); ++state) {
    CountWork(0x100);
    if (both->accepting[state] != 0) graph.edges.push_back({node_of(state), 1, nullptr});
    for (int first = 0; first <= 0xFF;) {
      const StateId next = both->Next(state, static_cast<uint8_t>(first));
      int last = first;
      while (last < 0xFF && last + 1 != kFirstAssertion &&
             both->Next(state, static_cast<uint8_t>(last + 1)) == next)
        ++last;
      if (next != kDead) {
        const ExprRef bytes = first >= kFirstAssertion
                                  ? nullptr
                                  : Byte(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
        graph.edges.push_back({node_of(state), node_of(next), bytes});
      }
      first = last + 1;
    }
  }
  return std::make_shared<const Expr>(Expr{std::move(graph)});
}

}  // namespace quire::runner::constraint
