#include "runner/constraint/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "api/base/utf8.h"
#include "runner/constraint/code_points.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr int kNestingMax = 64;             // nested groups; nested rules that are copied
constexpr uint32_t kRepetitionsMax = 2000;  // as llama.cpp
constexpr size_t kRulesMax = 10'000;
constexpr uint64_t kCopySizeMax = 2000;  // a larger rule is called rather than copied
constexpr uint32_t kLastCodePoint = 0x10FFFF;
constexpr size_t kBytesPerUnit = 64;  // that are skipped

// What a grammar says, before it is known which rules call themselves.
struct GbnfNode;
using GbnfRef = std::unique_ptr<const GbnfNode>;
struct GbnfNode {
  enum class Kind : uint8_t { kText, kSet, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kText;
  std::string text = {};            // kText
  CodePoints set = {};              // kSet
  size_t rule = 0;                  // kRule
  std::vector<GbnfRef> parts = {};  // kSequence, kChoice; one of kRepeat
  uint32_t min = 0;                 // kRepeat
  std::optional<uint32_t> max = {};
};

struct GbnfRule {
  std::string name;
  int used_in_line = 0;
  GbnfRef body = nullptr;  // null: not defined
};

// Recursive descent; after the first error it reads to the end without looking.
class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : left_(text) {}

  api::Result<std::vector<GbnfRule>> Run() {
    SkipSpace(/*lines_too=*/true);
    while (!AtEnd()) {
      ReadRule();
      SkipSpace(true);
    }
    for (const GbnfRule& rule : rules_) {
      if (rule.body != nullptr) continue;
      if (!error_) line_ = rule.used_in_line;
      Broken(fmt::format("the rule \"{}\" is not defined", rule.name));
    }
    if (error_) return std::unexpected(std::move(*error_));
    return std::move(rules_);
  }

 private:
  bool AtEnd() const { return error_ || left_.empty(); }
  char Next() const { return AtEnd() ? '\0' : left_.front(); }
  bool Sees(std::string_view text) const { return !AtEnd() && left_.starts_with(text); }
  void Skip(size_t bytes) {
    CountWork(1 + bytes / kBytesPerUnit);
    line_ += static_cast<int>(std::ranges::count(left_.substr(0, bytes), '\n'));
    left_.remove_prefix(std::min(bytes, left_.size()));
  }
  bool Consume(std::string_view text) {
    if (!Sees(text)) return false;
    Skip(text.size());
    return true;
  }

  void Set(api::ErrorCode code, std::string_view what) {
    if (!error_) error_ = api::Error{code, fmt::format("line {}: {}", line_, what), {}};
  }
  void Broken(std::string_view what) { Set(api::ErrorCode::kInvalidArgument, what); }
  void Unsupported(std::string_view what) { Set(api::ErrorCode::kUnsupported, what); }

  // Blanks and comments; line breaks where a rule goes on behind them.
  void SkipSpace(bool lines_too) {
    while (!AtEnd()) {
      if (Next() == '#') {
        Skip(std::min(left_.find('\n'), left_.size()));
      } else if (Next() == ' ' || Next() == '\t' || (lines_too && (Next() == '\r' || Next() == '\n'))) {
        Skip(1);
      } else {
        return;
      }
    }
  }

  static bool IsNameCharacter(char c) { return api::IsAsciiAlnum(c) || c == '-' || c == '_'; }

  std::string_view ReadName() {
    const auto end = std::ranges::find_if_not(left_, IsNameCharacter) - left_.begin();
    const std::string_view name = left_.substr(0, static_cast<size_t>(end));
    if (name.empty()) Broken("a rule's name is expected");
    Skip(name.size());
    return name;
  }

  size_t RuleOf(std::string_view name) {
    const auto [entry, made] = numbers_.try_emplace(std::string(name), rules_.size());
    if (made) rules_.push_back({.name = std::string(name), .used_in_line = line_});
    if (rules_.size() > kRulesMax) Unsupported(fmt::format("more than {} rules", kRulesMax));
    return entry->second;
  }

  void ReadRule() {
    const std::string_view name = ReadName();
    if (error_) return;
    const size_t rule = RuleOf(name);
    SkipSpace(false);
    if (!Consume("::=")) return Broken(fmt::format("\"::=\" is expected behind \"{}\"", name));
    SkipSpace(true);
    GbnfRef body = Alternatives(/*nested=*/false);
    if (!AtEnd() && Next() != '\n' && Next() != '\r') {
      return Broken(fmt::format("unexpected \"{}\"", Next()));
    }
    if (error_) return;
    if (rules_[rule].body != nullptr) return Broken(fmt::format("the rule \"{}\" is defined twice", name));
    rules_[rule].body = std::move(body);
  }

  // A line that begins with '|' goes on with the rule before it.
  bool ConsumeBar(bool nested) {
    const std::string_view left = left_;
    const int line = line_;
    SkipSpace(true);
    if (Consume("|")) return true;
    if (!nested) {
      left_ = left;
      line_ = line;
    }
    return false;
  }

  GbnfRef Alternatives(bool nested) {
    auto choice = std::make_unique<GbnfNode>(GbnfNode{.kind = GbnfNode::Kind::kChoice});
    do {
      SkipSpace(true);
      choice->parts.push_back(Items(nested));
    } while (!AtEnd() && ConsumeBar(nested));
    return choice;
  }

  GbnfRef Items(bool nested) {
    auto sequence = std::make_unique<GbnfNode>(GbnfNode{.kind = GbnfNode::Kind::kSequence});
    while (!AtEnd() && Next() != '|' && Next() != ')' && Next() != '\n' && Next() != '\r') {
      CountWork(1);
      GbnfRef item = Item();
      SkipSpace(nested);
      while (!AtEnd() && Quantify(item)) SkipSpace(nested);
      sequence->parts.push_back(std::move(item));
    }
    return sequence;
  }

  GbnfRef Item() {
    if (Consume("\"")) return Text();
    if (Consume("[")) return Set();
    if (Consume(".")) return One(CodePoints::All());
    if (Consume("(")) return Group();
    if (Next() == '<' || Next() == '!') {
      Unsupported("references to tokens (<...>) are not supported");
    } else if (IsNameCharacter(Next())) {
      auto call = std::make_unique<GbnfNode>(GbnfNode{.kind = GbnfNode::Kind::kRule});
      call->rule = RuleOf(ReadName());
      return call;
    } else {
      Broken(Next() == '*' || Next() == '+' || Next() == '?' || Next() == '{'
                 ? "a repetition of nothing"
                 : fmt::format("unexpected \"{}\"", Next()));
    }
    return std::make_unique<GbnfNode>();
  }

  static GbnfRef One(CodePoints set) {
    auto node = std::make_unique<GbnfNode>(GbnfNode{.kind = GbnfNode::Kind::kSet});
    node->set = std::move(set);
    return node;
  }

  GbnfRef Group() {
    if (++depth_ > kNestingMax) Unsupported(fmt::format("groups nested more than {} deep", kNestingMax));
    GbnfRef inside = Alternatives(/*nested=*/true);
    --depth_;
    SkipSpace(true);
    if (!Consume(")")) Broken("a group without its \")\"");
    return inside;
  }

  uint32_t Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = Next();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        Broken("an escape without its hexadecimal digits");
        return 0;
      }
      Skip(1);
    }
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF))
      Broken("an escape of no Unicode character");
    return value;
  }

  uint32_t Character() {
    if (!Consume("\\")) {
      const api::CodePoint next = api::CodePointAt(left_);
      Skip(next.bytes);
      return next.value;
    }
    const char c = Next();
    Skip(1);
    switch (c) {
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<uint32_t>(c);
      default:
        Broken(fmt::format("the escape \\{} is not known", c));
        return 0;
    }
  }

  GbnfRef Text() {
    auto node = std::make_unique<GbnfNode>();
    while (!AtEnd() && Next() != '"') api::AppendUtf8(node->text, Character());
    if (!Consume("\"")) Broken("a text without its closing quote");
    return node;
  }

  GbnfRef Set() {
    const bool negated = Consume("^");
    std::vector<CodePoints::Range> ranges;
    while (!AtEnd() && Next() != ']') {
      const uint32_t first = Character();
      uint32_t last = first;
      if (Next() == '-' && left_.size() > 1 && left_[1] != ']') {
        Skip(1);
        last = Character();
      }
      if (last < first) Broken("a range whose end is before its beginning");
      if (!error_) ranges.push_back({first, last});
    }
    if (!Consume("]")) Broken("a character set without its \"]\"");
    CodePoints set(std::move(ranges));
    return One(negated ? set.Complement() : std::move(set));
  }

  std::optional<uint32_t> Number() {
    std::optional<uint32_t> number;
    for (; Next() >= '0' && Next() <= '9'; Skip(1)) {
      number = std::min(number.value_or(0) * 10 + static_cast<uint32_t>(Next() - '0'), kRepetitionsMax + 1);
    }
    return number;
  }

  // Puts the item into the repetition that follows it; false: none does.
  bool Quantify(GbnfRef& item) {
    uint32_t min = 0;
    std::optional<uint32_t> max;
    if (Consume("*")) {
    } else if (Consume("+")) {
      min = 1;
    } else if (Consume("?")) {
      max = 1;
    } else if (Consume("{")) {
      Counts(min, max);
    } else {
      return false;
    }
    auto repeat = std::make_unique<GbnfNode>(GbnfNode{.kind = GbnfNode::Kind::kRepeat});
    repeat->min = min;
    repeat->max = max;
    repeat->parts.push_back(std::move(item));
    item = std::move(repeat);
    return true;
  }

  // {m}, {m,}, {m,n}, {,n}
  void Counts(uint32_t& min, std::optional<uint32_t>& max) {
    SkipSpace(true);
    const auto first = Number();
    min = first.value_or(0);
    max = first;
    SkipSpace(true);
    const bool range = Consume(",");
    if (range) {
      SkipSpace(true);
      max = Number();
      SkipSpace(true);
    }
    if (!Consume("}") || (!first && !max)) return Broken("a { that is not a repetition");
    if (max && *max < min) return Broken("a repetition whose maximum is below its minimum");
    if (std::max(min, max.value_or(0)) > kRepetitionsMax) {
      Unsupported(fmt::format("more than {} repetitions", kRepetitionsMax));
    }
  }

  std::string_view left_;
  int line_ = 1;
  int depth_ = 0;
  std::vector<GbnfRule> rules_;
  std::map<std::string, size_t, std::less<>> numbers_;  // of rules, by name
  std::optional<api::Error> error_;
};

// Rules as expressions. One that calls itself, directly or through others, or that is large, becomes a rule
// of the builder.
class GbnfCompiler {
 public:
  GbnfCompiler(const std::vector<GbnfRule>& rules, GrammarBuilder& builder)
      : rules_(rules), builder_(builder), states_(rules.size()) {}

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
  static void ForEachCall(const GbnfNode& node, Visit& visit) {
    CountWork(1);
    if (node.kind == GbnfNode::Kind::kRule) visit(node.rule);
    for (const GbnfRef& part : node.parts) ForEachCall(*part, visit);
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
    if (state.recursive || (state.expr == nullptr && depth_ >= kNestingMax)) return CallOf(rule);
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

  ExprRef ExprOf(const GbnfNode& node) {
    using Kind = GbnfNode::Kind;
    CountWork(1);
    ++size_;
    switch (node.kind) {
      case Kind::kText:
        size_ += node.text.size();
        return Literal(node.text);
      case Kind::kSet:
        size_ += node.set.ranges().size();
        return Utf8(node.set);
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
    for (const GbnfRef& part : node.parts) parts.push_back(ExprOf(*part));
    return node.kind == Kind::kSequence ? Sequence(std::move(parts)) : Choice(std::move(parts));
  }

  const std::vector<GbnfRule>& rules_;
  GrammarBuilder& builder_;
  std::vector<State> states_;   // [rules]
  std::vector<size_t> called_;  // rules of the builder, in the order of their declaration
  int depth_ = 0;               // of rules that are being copied
  uint64_t size_ = 0;           // of the expression that is being made: places of its automaton, about
};

}  // namespace

api::Result<ExprRef> Gbnf(std::string_view grammar, GrammarBuilder& builder) {
  const auto rules = GbnfParser(grammar).Run();
  if (!rules) return std::unexpected(rules.error());
  const auto root = std::ranges::find(*rules, "root", &GbnfRule::name);
  if (root == rules->end()) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "the rule \"root\" is not defined");
  }
  return GbnfCompiler(*rules, builder).Run(static_cast<size_t>(root - rules->begin()));
}

}  // namespace quire::runner::constraint
