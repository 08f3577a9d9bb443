#include "runner/constraint/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "api/base/utf8.h"
#include "runner/constraint/code_points.h"
#include "runner/constraint/rule_reader.h"

namespace quire::runner::constraint {
namespace {

class GbnfParser : public RuleReader {
 public:
  explicit GbnfParser(std::string_view text) : RuleReader(text, /*lines_after_bar=*/true) {}

  api::Result<std::vector<GrammarRule>> Run() {
    GbnfParser::SkipSpace(/*lines_too=*/true);
    while (!AtEnd()) {
      ReadRule();
      SkipSpace(true);
    }
    return Finish();
  }

 private:
  void SkipSpace(bool lines_too) override {
    while (!AtEnd()) {
      if (Next() == '#') {
        Skip(std::min(left().find('\n'), left().size()));
      } else if (Next() == ' ' || Next() == '\t' || (lines_too && (Next() == '\r' || Next() == '\n'))) {
        Skip(1);
      } else {
        return;
      }
    }
  }

  static bool IsNameCharacter(char c) { return api::IsAsciiAlnum(c) || c == '-' || c == '_'; }

  std::string_view ReadName() {
    const auto end = std::ranges::find_if_not(left(), IsNameCharacter) - left().begin();
    const std::string_view name = left().substr(0, static_cast<size_t>(end));
    if (name.empty()) Broken("a rule's name is expected");
    Skip(name.size());
    return name;
  }

  void ReadRule() {
    const std::string_view name = ReadName();
    if (AtEnd()) return Broken(fmt::format("\"::=\" is expected behind \"{}\"", name));
    RuleOf(name);
    SkipSpace(false);
    if (!Consume("::=")) return Broken(fmt::format("\"::=\" is expected behind \"{}\"", name));
    SkipSpace(true);
    RuleRef body = Alternatives(/*nested=*/false);
    if (!AtEnd() && Next() != '\n' && Next() != '\r') {
      return Broken(fmt::format("unexpected \"{}\"", Next()));
    }
    Define(name, std::move(body));
  }

  RuleRef Item() override {
    if (Consume("\"")) return Text();
    if (Consume("[")) return Set();
    if (Consume(".")) return One(CodePoints::All());
    if (Consume("(")) return Group(")");
    if (Next() == '<' || Next() == '!') {
      Unsupported("references to tokens (<...>) are not supported");
    } else if (IsNameCharacter(Next())) {
      return CallOf(ReadName());
    } else {
      Broken(Next() == '*' || Next() == '+' || Next() == '?' || Next() == '{'
                 ? "a repetition of nothing"
                 : fmt::format("unexpected \"{}\"", Next()));
    }
    return std::make_unique<RuleNode>();
  }

  uint32_t Character() {
    if (!Consume("\\")) {
      const api::CodePoint next = api::CodePointAt(left());
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

  RuleRef Text() {
    auto node = std::make_unique<RuleNode>();
    while (!AtEnd() && Next() != '"') api::AppendUtf8(node->text, Character());
    if (!Consume("\"")) Broken("a text without its closing quote");
    return node;
  }

  RuleRef Set() {
    const bool negated = Consume("^");
    std::vector<CodePoints::Range> ranges;
    while (!AtEnd() && Next() != ']') {
      const uint32_t first = Character();
      uint32_t last = first;
      if (Next() == '-' && left().size() > 1 && left()[1] != ']') {
        Skip(1);
        last = Character();
      }
      if (last < first) Broken("a range whose end is before its beginning");
      if (!AtEnd()) ranges.push_back({first, last});
    }
    if (!Consume("]")) Broken("a character set without its \"]\"");
    CodePoints set(std::move(ranges));
    return One(negated ? set.Complement() : std::move(set));
  }

  // {m}, {m,}, {m,n}, {,n}
  bool Counts(uint32_t& min, std::optional<uint32_t>& max) override {
    if (!Consume("{")) return false;
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
    if (!Consume("}") || (!first && !max)) Broken("a { that is not a repetition");
    return true;
  }
};

}  // namespace

api::Result<ExprRef> Gbnf(std::string_view grammar, GrammarBuilder& builder) {
  const auto rules = GbnfParser(grammar).Run();
  if (!rules) return std::unexpected(rules.error());
  const auto root = std::ranges::find(*rules, "root", &GrammarRule::name);
  if (root == rules->end()) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "the rule \"root\" is not defined");
  }
  return CompileRules(*rules, static_cast<size_t>(root - rules->begin()), builder, Utf8);
}

}  // namespace quire::runner::constraint
