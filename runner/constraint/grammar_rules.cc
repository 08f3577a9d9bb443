#include "runner/constraint/grammar_rules.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "api/base/utf8.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr int kCopiesNestedMax = 64;     // rules that are copied into each other
constexpr uint64_t kCopySizeMax = 2000;  // a larger rule is called rather than copied

class RulesCompiler {
 public:
  RulesCompiler(std::span<const GrammarRule> rules, GrammarBuilder& builder,
                ExprRef (*encode)(const CodePoints&))
      : rules_(rules), builder_(builder), encode_(encode), states_(rules.size()) {}

  ExprRef Run(size_t root) {
    FindRecursive();
    ExprRef whole = ExprOfRule(root);
    // A rule is built when it is first called; its own calls add more.
    for (size_t i = 0; i < called_.size(); ++i) {
      const size_t rule = called_[i];
      builder_.Define(*states_[rule].number, ExprOf(*rules_[rule].body));
    }
    return whole;
  }

 private:
  struct State {
    bool recursive = false;
    ExprRef expr = nullptr;               // of one that is copied
    uint64_t size = 0;                    // of it
    std::optional<uint32_t> number = {};  // of one that is called
  };

  template <class Visit>
  static void ForEachCall(const RuleNode& node, Visit& visit) {
    CountWork(1);
    if (node.kind == RuleNode::Kind::kRule) visit(node.rule);
    for (const RuleRef& part : node.parts) ForEachCall(*part, visit);
  }

  // Removes rules that call none of the remaining ones; those that stay reach a cycle. A rule that only leads
  // to a cycle is called too, which changes nothing of what it matches.
  void FindRecursive() {
    std::vector<std::vector<size_t>> callers(rules_.size());
    std::vector<size_t> calls(rules_.size());
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      auto note = [&](size_t called) {
        callers[called].push_back(rule);
        ++calls[rule];
      };
      ForEachCall(*rules_[rule].body, note);
    }
    std::vector<size_t> ready;
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      states_[rule].recursive = calls[rule] > 0;
      if (calls[rule] == 0) ready.push_back(rule);
    }
    while (!ready.empty()) {
      const size_t rule = ready.back();
      ready.pop_back();
      for (const size_t caller : callers[rule]) {
        if (--calls[caller] > 0) continue;
        states_[caller].recursive = false;
        ready.push_back(caller);
      }
    }
  }

  ExprRef CallOf(size_t rule) {
    State& state = states_[rule];
    if (!state.number) {
      state.number = builder_.Declare();
      called_.push_back(rule);
    }
    return Call(*state.number);
  }

  ExprRef ExprOfRule(size_t rule) {
    State& state = states_[rule];
    if (state.recursive || (state.expr == nullptr && depth_ >= kCopiesNestedMax)) return CallOf(rule);
    if (state.expr == nullptr) {
      const uint64_t before = std::exchange(size_, 0);
      ++depth_;
      state.expr = ExprOf(*rules_[rule].body);
      --depth_;
      state.size = std::exchange(size_, before);
    }
    if (state.size > kCopySizeMax) return CallOf(rule);
    size_ += state.size;
    return state.expr;
  }

  ExprRef Text(std::string_view text) const {
    if (encode_ == Utf8) return Literal(text);
    std::vector<ExprRef> characters;
    while (!text.empty()) {
      const api::CodePoint next = api::CodePointAt(text);
      characters.push_back(encode_({{next.value, next.value}}));
      text.remove_prefix(next.bytes);
    }
    return Sequence(std::move(characters));
  }

  ExprRef ExprOf(const RuleNode& node) {
    using Kind = RuleNode::Kind;
    CountWork(1);
    ++size_;
    switch (node.kind) {
      case Kind::kText:
        size_ += node.text.size();
        return Text(node.text);
      case Kind::kSet:
        size_ += node.set.ranges().size();
        return encode_(node.set);
      case Kind::kExpr:
        size_ += node.text.size();
        return node.expr;
      case Kind::kRule:
        return ExprOfRule(node.rule);
      case Kind::kRepeat: {
        const uint64_t before = std::exchange(size_, 0);
        const ExprRef part = ExprOf(*node.parts.front());
        size_ = before + size_ * std::max<uint64_t>(node.max.value_or(node.min + 1), 1);
        return Repeat(part, node.min, node.max);
      }
      case Kind::kSequence:
      case Kind::kChoice:
        break;
    }
    std::vector<ExprRef> parts;
    for (const RuleRef& part : node.parts) parts.push_back(ExprOf(*part));
    return node.kind == Kind::kSequence ? Sequence(std::move(parts)) : Choice(std::move(parts));
  }

  const std::span<const GrammarRule> rules_;
  GrammarBuilder& builder_;
  ExprRef (*const encode_)(const CodePoints&);
  std::vector<State> states_;   // [rules]
  std::vector<size_t> called_;  // rules of the builder, in the order of their declaration
  int depth_ = 0;               // of rules that are being copied
  uint64_t size_ = 0;           // of the expression that is being made: places of its automaton, about
};

}  // namespace

ExprRef CompileRules(std::span<const GrammarRule> rules, size_t root, GrammarBuilder& builder,
                     ExprRef (*encode)(const CodePoints& set)) {
  return RulesCompiler(rules, builder, encode).Run(root);
}

}  // namespace quire::runner::constraint
