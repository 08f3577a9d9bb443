#include "runner/constraint/lark.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "api/base/utf8.h"
#include "runner/constraint/character_classes.h"
#include "runner/constraint/regex.h"
#include "runner/constraint/rule_reader.h"

namespace quire::runner::constraint {
namespace {

struct CommonTerminal {
  std::string_view name;
  std::string_view pattern;
};

// What `%import common.NAME` means.
constexpr auto kCommonTerminals = std::to_array<CommonTerminal>({
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
    {"FLOAT", R"([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SIGNED_FLOAT", R"([+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?))"},
    {"NUMBER", R"(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"SIGNED_NUMBER", R"([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", R"("([^"\\\n]|\\.)*")"},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", R"([ \t]+)"},
    {"WS", R"([ \t\f\r\n]+)"},
    {"CR", R"(\r)"},
    {"LF", R"(\n)"},
    {"NEWLINE", R"((\r?\n)+)"},
    {"SH_COMMENT", R"(#[^\n]*)"},
    {"CPP_COMMENT", R"(//[^\n]*)"},
    {"C_COMMENT", R"(/\*([^*]|\*+[^*/])*\*+/)"},
    {"SQL_COMMENT", R"(--[^\n]*)"},
});

constexpr std::string_view kLarkStart = "start";
// Names that no rule has.
constexpr std::string_view kLarkIgnored = "%ignore";
constexpr std::string_view kLarkWhole = "%whole";

class LarkParser : public RuleReader {
 public:
  LarkParser(std::string_view text, ExprRef (*encode)(const CodePoints&))
      : RuleReader(text, /*lines_after_bar=*/false),
        encode_(encode),
        ignores_(text.find(kLarkIgnored) != std::string_view::npos) {}

  api::Result<std::vector<GrammarRule>> Run() {
    LarkParser::SkipSpace(/*lines_too=*/true);
    while (!AtEnd()) {
      ReadStatement();
      SkipSpace(true);
    }
    if (ignores_) {
      auto any = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kChoice});
      any->parts = std::move(ignored_);
      Define(kLarkIgnored, Repetition(std::move(any), 0, std::nullopt));
    }
    auto whole = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kSequence});
    if (ignores_) whole->parts.push_back(CallOf(kLarkIgnored));
    whole->parts.push_back(CallOf(kLarkStart));
    Define(kLarkWhole, std::move(whole));
    return Finish();
  }

 private:
  static bool IsNameCharacter(char c) { return api::IsAsciiAlnum(c) || c == '_'; }

  void SkipBlanks() {
    while (Next() == ' ' || Next() == '\t') Skip(1);
  }

  // The alias of an alternative ("-> name") says nothing of the text.
  void SkipSpace(bool lines_too) override {
    while (!AtEnd()) {
      if (Sees("//") || Next() == '#') {
        Skip(std::min(left().find('\n'), left().size()));
      } else if (Consume("->")) {
        SkipBlanks();
        ReadName();
      } else if (Next() == ' ' || Next() == '\t' || (lines_too && (Next() == '\r' || Next() == '\n'))) {
        Skip(1);
      } else {
        return;
      }
    }
  }

  std::string_view ReadName() {
    const auto end = std::ranges::find_if_not(left(), IsNameCharacter) - left().begin();
    const std::string_view name = left().substr(0, static_cast<size_t>(end));
    if (name.empty()) Broken("a name is expected");
    Skip(name.size());
    return name;
  }

  static bool IsTerminal(std::string_view name) {
    const size_t letter = name.find_first_not_of('_');
    return letter != std::string_view::npos && name[letter] >= 'A' && name[letter] <= 'Z';
  }

  void ReadStatement() {
    if (Consume("%")) return ReadDirective();
    while (Consume("!") || Consume("?")) {
    }
    const std::string_view name = ReadName();
    if (Next() == '{') return RefuseTemplate();
    if (Consume(".")) {
      Consume("-");
      Number();
    }
    SkipBlanks();
    if (!Consume(":")) return Broken(fmt::format("\":\" is expected behind \"{}\"", name));
    in_rule_ = !IsTerminal(name);
    Define(name, ReadBody());
  }

  // Alternatives, up to the end of their line.
  RuleRef ReadBody() {
    RuleRef body = Alternatives(/*nested=*/false);
    if (!AtEnd() && Next() != '\n' && Next() != '\r') Broken(fmt::format("unexpected \"{}\"", Next()));
    return body;
  }

  void ReadDirective() {
    const std::string_view name = ReadName();
    if (name == "import") return ReadImport();
    if (name != "ignore") return Unsupported(fmt::format("%{} is not supported", name));
    in_rule_ = false;
    ignored_.push_back(ReadBody());
  }

  // common.NAME, common.NAME -> ALIAS, common (NAME, NAME)
  void ReadImport() {
    SkipBlanks();
    const size_t line_end = std::min(left().find('\n'), left().size());
    if (!Consume("common")) {
      return Unsupported(
          fmt::format("%import of {}: only that of common is supported", left().substr(0, line_end)));
    }
    SkipBlanks();
    if (Consume(".")) {
      const std::string_view name = ReadName();
      SkipBlanks();
      if (!Consume("->")) return Import(name, name);
      SkipBlanks();
      return Import(name, ReadName());
    }
    if (!Consume("(")) return Broken("\".\" or \"(\" is expected behind \"common\"");
    do {
      SkipSpace(true);
      const std::string_view name = ReadName();
      Import(name, name);
      SkipSpace(true);
    } while (Consume(","));
    if (!Consume(")")) Broken("a list of names without its \")\"");
  }

  void Import(std::string_view name, std::string_view as) {
    const auto* known = std::ranges::find(kCommonTerminals, name, &CommonTerminal::name);
    if (known == kCommonTerminals.end()) {
      return Unsupported(fmt::format("%import common.{}: this terminal is not known", name));
    }
    Define(as, Match(std::string(known->pattern)));
  }

  void RefuseTemplate() { Unsupported("templates (name{...}) are not supported"); }

  RuleRef Item() override {
    if (Consume("(")) return Group(")");
    if (Consume("[")) return Repetition(Group("]"), 0, 1);
    if (Consume("\"")) return Token(TextOrRange());
    if (Consume("/")) return Token(Regexp());
    if (IsNameCharacter(Next())) {
      const std::string_view name = ReadName();
      if (Next() == '{') RefuseTemplate();
      RuleRef call = CallOf(name);
      return IsTerminal(name) ? Token(std::move(call)) : std::move(call);
    }
    constexpr std::string_view kRepetitions = "*+?~";
    Broken(kRepetitions.find(Next()) != std::string_view::npos ? "a repetition of nothing"
                                                               : fmt::format("unexpected \"{}\"", Next()));
    return std::make_unique<RuleNode>();
  }

  // A terminal; in a rule with what may be ignored behind it.
  RuleRef Token(RuleRef terminal) {
    if (!in_rule_ || !ignores_) return terminal;
    auto both = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kSequence});
    both->parts.push_back(std::move(terminal));
    both->parts.push_back(CallOf(kLarkIgnored));
    return both;
  }

  // ~m, ~m..n
  bool Counts(uint32_t& min, std::optional<uint32_t>& max) override {
    if (!Consume("~")) return false;
    SkipBlanks();
    const auto first = Number();
    const bool range = Consume("..");
    max = range ? Number() : first;
    if (!first || !max) Broken("a ~ that is not a repetition");
    min = first.value_or(0);
    return true;
  }

  uint32_t Escape() {
    const char c = Next();
    constexpr std::string_view kShort = "ntrf";
    constexpr std::string_view kMeant = "\n\t\r\f";
    if (const size_t at = kShort.find(c); at != std::string_view::npos) {
      Skip(1);
      return static_cast<uint32_t>(kMeant[at]);
    }
    if (Consume("x")) return Hex(2);
    if (Consume("u")) return Hex(4);
    if (Consume("U")) return Hex(8);
    if (c != '"' && c != '\\') return '\\';  // itself, and what follows
    Skip(1);
    return static_cast<uint32_t>(c);
  }

  // Behind the opening quote.
  std::string Text() {
    std::string text;
    while (!AtEnd() && Next() != '"' && Next() != '\n') {
      if (Consume("\\")) {
        api::AppendUtf8(text, Escape());
        continue;
      }
      const api::CodePoint next = api::CodePointAt(left());
      Skip(next.bytes);
      api::AppendUtf8(text, next.value);
    }
    if (!Consume("\"")) Broken("a text without its closing quote");
    return text;
  }

  RuleRef TextOrRange() {
    std::string text = Text();
    if (text.empty()) Broken("an empty text");
    if (Sees("..")) return Range(text);
    auto node = std::make_unique<RuleNode>();
    if (!Consume("i")) {
      node->text = std::move(text);
      return node;
    }
    node->kind = RuleNode::Kind::kSequence;
    for (std::string_view rest = text; !rest.empty();) {
      const api::CodePoint next = api::CodePointAt(rest);
      node->parts.push_back(One(WithBothCases({{next.value, next.value}})));
      rest.remove_prefix(next.bytes);
    }
    return node;
  }

  // "a".."z"
  RuleRef Range(std::string_view from) {
    Consume("..");
    if (!Consume("\"")) Broken("a range without its end");
    const std::string to = Text();
    const api::CodePoint first = from.empty() ? api::CodePoint() : api::CodePointAt(from);
    const api::CodePoint last = to.empty() ? api::CodePoint() : api::CodePointAt(to);
    if (from.empty() || first.bytes != from.size() || last.bytes != to.size() || last.value < first.value) {
      Broken("a range that is not from one character to a later one");
      return std::make_unique<RuleNode>();
    }
    return One({{first.value, last.value}});
  }

  // Behind the opening slash.
  RuleRef Regexp() {
    size_t end = 0;
    while (end < left().size() && left()[end] != '/') end += left()[end] == '\\' ? 2 : 1;
    if (end >= left().size()) {
      Broken("a regular expression without its closing \"/\"");
      return std::make_unique<RuleNode>();
    }
    std::string flags;
    std::string pattern(left().substr(0, end));
    Skip(end + 1);
    for (; IsNameCharacter(Next()); Skip(1)) {
      const char flag = Next();
      if (flag != 'i' && flag != 's' && flag != 'u') Unsupported(fmt::format("the flag \"{}\"", flag));
      if (flag != 'u') flags += flag;
    }
    return Match(flags.empty() ? std::move(pattern) : fmt::format("(?{}){}", flags, pattern));
  }

  RuleRef Match(std::string pattern) {
    auto node = std::make_unique<RuleNode>(RuleNode{.kind = RuleNode::Kind::kExpr});
    auto expr = Regex(pattern, Anchoring::kWhole, encode_, nullptr, Dot::kNoLineFeed);
    if (!expr) SetError(expr.error().code, expr.error().message);
    node->expr = expr ? *std::move(expr) : Never();
    node->text = std::move(pattern);
    return node;
  }

  ExprRef (*const encode_)(const CodePoints&);
  const bool ignores_;
  bool in_rule_ = false;  // and not in a terminal
  std::vector<RuleRef> ignored_;
};

}  // namespace

api::Result<ExprRef> Lark(std::string_view grammar, GrammarBuilder& builder,
                          ExprRef (*encode)(const CodePoints& set)) {
  const auto rules = LarkParser(grammar, encode).Run();
  if (!rules) return std::unexpected(rules.error());
  const auto whole = std::ranges::find(*rules, kLarkWhole, &GrammarRule::name);
  return CompileRules(*rules, static_cast<size_t>(whole - rules->begin()), builder, encode);
}

}  // namespace quire::runner::constraint
