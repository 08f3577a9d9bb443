// Grammar expressions over byte strings.
//
//   cache.Get(key, [&](GrammarBuilder& builder) -> api::Result<ExprRef> {  // output_format.h
//     auto arguments = JsonSchema(schema, builder);                     // schema.h
//     if (!arguments) return arguments;
//     return Sequence({Literal("<tool_call>"), *arguments, Literal("</tool_call>")});
//   });
// Regular expressions are copied where they are used; nested ones (the objects and arrays of a schema) are
// rules of the builder and are called. Expressions are immutable values, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::constraint {

// Bytes that vocabularies have as text: UTF-8 and its fragments.
inline constexpr uint8_t kTextByteMax = 0xF7;

struct Expr;
struct Dfa;
using ExprRef = std::shared_ptr<const Expr>;

struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;  // inclusive
};

struct Expr {
  using Bytes = std::vector<ByteRange>;  // one byte of them
  struct Edge {
    uint32_t from = 0;
    uint32_t to = 0;
    ExprRef label;  // null: epsilon
  };
  struct Graph {  // from node 0 to node 1
    uint32_t nodes = 2;
    std::vector<Edge> edges;
  };
  struct Call {
    uint32_t rule = 0;
  };
  using Automaton = std::shared_ptr<const Dfa>;

  std::variant<Bytes, std::string, Graph, Call, Automaton> form;
};

struct Lengths {
  uint32_t min = 0;
  std::optional<uint32_t> max = {};
};

// The kind of a rule. A list of distinct items calls the rule of its items, one and the same for
// all, and no other; between two of them, and before the list's end, it reads something. No two items of one
// list may have the same text. The rule of an item calls none.
// A counted text is a JSON string with its quotes, of a bounded number of characters; it calls no rule. A
// counted list calls a rule for each of its items, of which it has a bounded number, and no other. Neither
// matches the empty text.
enum class RuleKind : uint8_t { kText, kDistinctList, kDistinctItem, kCountedText, kCountedList };

// The rules that expressions may call, also each other and themselves. One thread.
class GrammarBuilder {
 public:
  uint32_t Declare(RuleKind kind = RuleKind::kText, Lengths counts = {}) {
    bodies_.emplace_back();
    kinds_.push_back(kind);
    counts_.push_back(counts);
    return static_cast<uint32_t>(bodies_.size() - 1);
  }
  // REQUIRES: declared.
  void Define(uint32_t rule, ExprRef body) { bodies_[rule] = std::move(body); }
  uint32_t size() const { return static_cast<uint32_t>(bodies_.size()); }
  const ExprRef& body(uint32_t rule) const { return bodies_[rule]; }  // null: matches nothing
  RuleKind kind(uint32_t rule) const { return kinds_[rule]; }
  const Lengths& counts(uint32_t rule) const { return counts_[rule]; }  // of counted kinds

  // A rule of a format is not enforced: the name of a keyword, or what of it.
  void Loosen(std::string_view what) { loosened_.insert(std::string(what)); }
  const std::set<std::string>& loosened() const { return loosened_; }

 private:
  std::vector<ExprRef> bodies_;
  std::vector<RuleKind> kinds_;
  std::vector<Lengths> counts_;
  std::set<std::string> loosened_;
};

ExprRef Bytes(Expr::Bytes ranges);  // no ranges: matches nothing
ExprRef Byte(uint8_t first, uint8_t last);
ExprRef Literal(std::string_view text);
ExprRef Call(uint32_t rule);
ExprRef Automaton(std::shared_ptr<const Dfa> dfa);
ExprRef Sequence(std::vector<ExprRef> exprs);
ExprRef Choice(std::vector<ExprRef> exprs);  // of none: matches nothing
ExprRef Optional(ExprRef expr);
ExprRef Repeat(const ExprRef& expr, uint32_t min, std::optional<uint32_t> max);  // no max: without bound
ExprRef Nothing();                                                               // the empty text
ExprRef Never();                                                                 // matches no text
bool IsNever(const ExprRef& expr);                                               // made by Never()

// The bytes that stand for a special token of the vocabulary (<|im_end|>) inside a grammar; none of them
// begins or continues UTF-8 text. The token's text written out in other tokens is not it.
std::string SpecialTokenBytes(api::TokenId id);

// Any bytes, none of them from a special token, up to and including the first `marker`:
// Sequence({TextUntil("<tool_call>"), ...}) begins to constrain after a marker. The marker is text or what
// SpecialTokenBytes() gives. REQUIRES: not empty.
ExprRef TextUntil(std::string_view marker);
// Any bytes, none of them from a special token, of texts in which `marker` does not occur.
ExprRef TextWithout(std::string_view marker);
// The same with any special tokens.
ExprRef AnythingUntil(std::string_view marker);
ExprRef AnythingWithout(std::string_view marker);

}  // namespace quire::runner::constraint
