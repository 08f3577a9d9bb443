#include "runner/gotemplate/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/jinja/unicode.h"

namespace quire::runner::gotemplate {
namespace {

constexpr std::string_view kOpen = "{{";
constexpr std::string_view kClose = "}}";
constexpr std::string_view kTrimmedClose = "-}}";
constexpr std::string_view kSpaces = " \t\r\n";
constexpr size_t kBytesPerUnit = 64;

bool IsSpace(char c) { return c != '\0' && kSpaces.find(c) != std::string_view::npos; }

}  // namespace

void Parser::Fail(std::string message) const { throw SyntaxError{line_, std::move(message)}; }

void Parser::Advance(size_t bytes) {
  CountWork(1 + bytes / kBytesPerUnit);
  line_ += static_cast<int>(std::ranges::count(source_.substr(at_, bytes), '\n'));
  at_ += bytes;
}

bool Parser::SkipSpaces() {
  const size_t end = std::min(source_.find_first_not_of(kSpaces, at_), source_.size());
  const bool skipped = end > at_;
  Advance(end - at_);
  return skipped;
}

bool Parser::Consume(std::string_view token) {
  if (!source_.substr(at_).starts_with(token)) return false;
  Advance(token.size());
  return true;
}

std::string_view Parser::PeekWord() const {
  size_t end = at_;
  if (end < source_.size() && IsWordStart(source_[end])) {
    while (end < source_.size() && IsWordPart(source_[end])) ++end;
  }
  return source_.substr(at_, end - at_);
}

// Spaces are skipped: at "}}", or at "-}}" behind a space.
bool Parser::AtClose() const {
  const std::string_view rest = source_.substr(at_);
  return rest.starts_with(kClose) ||
         (rest.starts_with(kTrimmedClose) && at_ > 0 && IsSpace(source_[at_ - 1]));
}

void Parser::CloseAction() {
  SkipSpaces();
  if (!AtClose()) Fail(at_ >= source_.size() ? "unclosed action" : "unexpected text in an action");
  trim_ = Consume(kTrimmedClose);
  if (!trim_) Consume(kClose);
}

// Text up to the next action, and what opens that.
void Parser::ParseText(std::vector<Node>& out) {
  const size_t open = std::min(source_.find(kOpen, at_), source_.size());
  std::string_view text = source_.substr(at_, open - at_);
  const int line = line_;
  Advance(text.size());
  if (trim_) text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  trim_ = false;
  if (Consume(kOpen) && Peek() == '-' && IsSpace(Peek(1))) {
    Advance(1);
    text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
  }
  if (text.empty()) return;
  Node& node = out.emplace_back();
  node.line = line;
  node.text = text;
}

bool Parser::SkipComment() {
  if (!Consume("/*")) return false;
  const size_t end = source_.find("*/", at_);
  if (end == std::string_view::npos) Fail("unclosed comment");
  Advance(end + 2 - at_);
  CloseAction();
  return true;
}

Parser::End Parser::ParseList(std::vector<Node>& out, bool inside) {
  const Nesting nesting(*this);
  while (true) {
    ParseText(out);
    if (at_ >= source_.size()) {
      if (source_.ends_with(kOpen)) Fail("unclosed action");
      if (inside) Fail("unexpected end of the template: an {{ end }} is missing");
      return End::kSource;
    }
    SkipSpaces();
    if (SkipComment()) continue;
    const std::string_view word = PeekWord();
    if (word == "if") {
      out.push_back(ParseBranch(Node::Kind::kIf, word));
    } else if (word == "range") {
      out.push_back(ParseBranch(Node::Kind::kRange, word));
    } else if (word == "with") {
      out.push_back(ParseBranch(Node::Kind::kWith, word));
    } else if (word == "break") {
      out.push_back(ParseLoopExit(Node::Kind::kBreak, word));
    } else if (word == "continue") {
      out.push_back(ParseLoopExit(Node::Kind::kContinue, word));
    } else if (word == "end" || word == "else") {
      if (!inside) Fail(fmt::format("unexpected {{{{ {} }}}}", word));
      Advance(word.size());
      if (word == "else") return End::kElse;
      CloseAction();
      return End::kEnd;
    } else if (word == "template" || word == "block") {
      out.push_back(ParseTemplate(word));
    } else if (word == "define") {
      if (inside) Fail("{{ define }} inside another action");
      ParseDefine(word);
    } else {
      Node node;
      node.kind = Node::Kind::kAction;
      node.line = line_;
      node.pipe = ParsePipe(/*of_range=*/false);
      CloseAction();
      out.push_back(std::move(node));
    }
  }
}

Node Parser::ParseBranch(Node::Kind kind, std::string_view word) {
  const Nesting nesting(*this);
  const size_t outer = variables_.size();
  Node node;
  node.kind = kind;
  node.line = line_;
  Advance(word.size());
  const bool is_range = kind == Node::Kind::kRange;
  node.pipe = ParsePipe(is_range);
  CloseAction();
  const size_t inner = variables_.size();
  loops_ += is_range ? 1 : 0;
  const End end = ParseList(node.body, true);
  loops_ -= is_range ? 1 : 0;
  variables_.Shrink(inner);
  if (end == End::kElse) {
    SkipSpaces();
    const std::string_view next = PeekWord();
    const bool chained =
        (next == "if" && kind == Node::Kind::kIf) || (next == "with" && kind == Node::Kind::kWith);
    if (chained) {
      node.otherwise.push_back(ParseBranch(kind, next));
    } else {
      CloseAction();
      if (ParseList(node.otherwise, true) == End::kElse) Fail("a second {{ else }}");
    }
  }
  variables_.Shrink(outer);
  return node;
}

Node Parser::ParseLoopExit(Node::Kind kind, std::string_view word) {
  if (loops_ == 0) Fail(fmt::format("{{{{ {} }}}} outside {{{{ range }}}}", word));
  Node node;
  node.kind = kind;
  node.line = line_;
  Advance(word.size());
  CloseAction();
  return node;
}

std::string Parser::ParseName(std::string_view word) {
  Advance(word.size());
  SkipSpaces();
  if (Peek() == '"') return ParseQuoted('"');
  if (Peek() == '`') return ParseRaw();
  Fail(fmt::format("{{{{ {} }}}} needs a name in quotes", word));
}

// {{ template "name" [pipeline] }}, or {{ block "name" pipeline }} with what it stands for up to {{ end }}.
Node Parser::ParseTemplate(std::string_view word) {
  const bool is_block = word == "block";
  Node node;
  node.kind = Node::Kind::kTemplate;
  node.line = line_;
  node.text = ParseName(word);
  SkipSpaces();
  if (is_block || !AtClose()) node.pipe = ParsePipe(/*of_range=*/false);
  CloseAction();
  called_.emplace_back(node.text, node.line);
  if (is_block) ParseTemplateBody(node.text);
  return node;
}

void Parser::ParseDefine(std::string_view word) {
  const std::string name = ParseName(word);
  CloseAction();
  ParseTemplateBody(name);
}

// Variables and loops of the place where it stands do not reach into it.
void Parser::ParseTemplateBody(const std::string& name) {
  Variables outer = std::exchange(variables_, Variables());
  const int loops = std::exchange(loops_, 0);
  std::vector<Node> body;
  if (ParseList(body, true) == End::kElse) Fail("unexpected {{ else }}");
  variables_ = std::move(outer);
  loops_ = loops;
  if (!program_.templates.emplace(name, std::move(body)).second) {
    Fail(fmt::format("template \"{}\" is defined twice", name));
  }
}

Program Parser::Parse() {
  ParseList(program_.nodes, false);
  for (const auto& [name, line] : called_) {
    line_ = line;
    if (!program_.templates.contains(name)) Fail(fmt::format("template \"{}\" is not defined", name));
  }
  return std::move(program_);
}

}  // namespace quire::runner::gotemplate
