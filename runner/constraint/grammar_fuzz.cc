// libFuzzer: bytes that build grammar expressions with rules that call each other, then a text. The compiled
// grammar matches the text exactly if a slow matcher over the expressions does.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/constraint/grammar.h"
#include "runner/constraint/testing/fuzz_walk.h"
#include "runner/work/work_budget.h"

namespace {

using namespace quire::runner::constraint;
using fuzzing::Choices;
using fuzzing::Require;

constexpr uint32_t kRules = 3;
constexpr int kDepthMax = 5;
constexpr size_t kTextMax = 12;

ExprRef Build(Choices& choices, int depth) {
  if (depth == 0 || choices.over()) return Byte('a', static_cast<uint8_t>('a' + choices.Below(3)));
  switch (choices.Below(11)) {
    case 0:
      return Byte('b', 'c');
    case 1:
      return Literal(std::string(choices.Below(3), 'a'));
    case 2:
      return Never();
    case 3:
    case 4:
      return Call(choices.Below(kRules));
    case 5: {
      const ExprRef first = Build(choices, depth - 1);
      return Sequence({first, Build(choices, depth - 1), Build(choices, depth - 1)});
    }
    case 6: {
      const ExprRef first = Build(choices, depth - 1);
      return Choice({first, Build(choices, depth - 1), Build(choices, depth - 1)});
    }
    case 7:
      return Optional(Build(choices, depth - 1));
    case 8: {
      const uint32_t min = choices.Below(3);
      return Repeat(Build(choices, depth - 1), min, min + choices.Below(3));
    }
    case 9:
      return Repeat(Build(choices, depth - 1), choices.Below(2), std::nullopt);
    default:
      return choices.Below(2) == 0 ? TextUntil("ab") : TextWithout("aab");
  }
}

// Where a match of an expression that begins at `from` can end. A call within itself at the same place adds
// nothing in the first round; rounds are repeated until nothing is new.
class SlowMatcher {
 public:
  SlowMatcher(const GrammarBuilder& builder, std::string_view text) : builder_(builder), text_(text) {}

  bool Matches(const ExprRef& whole) {
    std::set<size_t> ends;
    do {
      grown_ = false;
      visiting_.clear();
      of_this_round_.clear();
      ends = Ends(whole, 0);
    } while (grown_);
    return ends.contains(text_.size());
  }

 private:
  using Offsets = std::set<size_t>;

  Offsets Ends(const ExprRef& expr, size_t from) {
    if (!expr) return {};
    if (const auto* bytes = std::get_if<Expr::Bytes>(&expr->form)) {
      const bool reads = from < text_.size() && std::ranges::any_of(*bytes, [&](ByteRange range) {
                           const auto byte = static_cast<uint8_t>(text_[from]);
                           return range.first <= byte && byte <= range.last;
                         });
      return reads ? Offsets{from + 1} : Offsets{};
    }
    if (const auto* literal = std::get_if<std::string>(&expr->form)) {
      return text_.substr(from).starts_with(*literal) ? Offsets{from + literal->size()} : Offsets{};
    }
    if (const auto* call = std::get_if<Expr::Call>(&expr->form)) return EndsOfRule(call->rule, from);
    const std::pair key{expr.get(), from};
    if (const auto found = of_this_round_.find(key); found != of_this_round_.end()) return found->second;
    return of_this_round_[key] = EndsOfGraph(std::get<Expr::Graph>(expr->form), from);
  }

  Offsets EndsOfGraph(const Expr::Graph& graph, size_t from) {
    std::set<std::pair<uint32_t, size_t>> seen{{0, from}};
    std::vector<std::pair<uint32_t, size_t>> todo{{0, from}};
    Offsets ends;
    while (!todo.empty()) {
      const auto [node, at] = todo.back();
      todo.pop_back();
      if (node == 1) ends.insert(at);
      for (const Expr::Edge& edge : graph.edges) {
        if (edge.from != node) continue;
        for (const size_t end : edge.label ? Ends(edge.label, at) : Offsets{at}) {
          if (seen.emplace(edge.to, end).second) todo.emplace_back(edge.to, end);
        }
      }
    }
    return ends;
  }

  Offsets EndsOfRule(uint32_t rule, size_t from) {
    const std::pair key{rule, from};
    if (!visiting_.insert(key).second) return known_[key];
    const Offsets ends = Ends(builder_.body(rule), from);
    Offsets& known = known_[key];
    const size_t before = known.size();
    known.insert(ends.begin(), ends.end());
    grown_ = grown_ || known.size() > before;
    return known;
  }

  const GrammarBuilder& builder_;
  const std::string_view text_;
  std::map<std::pair<uint32_t, size_t>, Offsets> known_;
  std::set<std::pair<uint32_t, size_t>> visiting_;
  std::map<std::pair<const Expr*, size_t>, Offsets> of_this_round_;  // of graphs; the last round changes none
  bool grown_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [code, rest] = fuzzing::SplitAt({reinterpret_cast<const char*>(data), size}, '\xFF');
  if (code.size() > 64) return 0;
  try {
    const quire::runner::WorkLimit limit(fuzzing::kUnitsMax);
    Choices choices(code);
    GrammarBuilder builder;
    for (uint32_t rule = 0; rule < kRules; ++rule) builder.Declare();
    for (uint32_t rule = 0; rule < kRules; ++rule) builder.Define(rule, Build(choices, kDepthMax));
    const ExprRef whole = Build(choices, kDepthMax);
    const auto grammar = CompileGrammar(whole, builder);
    if (!grammar) return 0;
    if (const auto text = fuzzing::Walk(**grammar, Choices(rest)); text && text->size() <= kTextMax) {
      Require(SlowMatcher(builder, *text).Matches(whole));
    }
    std::string text;
    for (const char c : rest.substr(0, kTextMax))
      text += static_cast<char>('a' + static_cast<uint8_t>(c) % 4);
    if (const auto matches = fuzzing::Matches(**grammar, text)) {
      Require(*matches == SlowMatcher(builder, text).Matches(whole));
    }
  } catch (const quire::runner::WorkStopped&) {
  }
  return 0;
}
