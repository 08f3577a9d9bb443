// What a grammar is put together from: pieces of a language of byte strings.
//
//   cache.Get(key, [&](RuleBook& rules) -> api::Result<PartRef> {     // a ConstraintCache: output_format.h
//     auto arguments = JsonSchema(schema, rules);                     // schema.h
//     if (!arguments) return arguments;
//     return Sequence({Literal("<tool_call>"), *arguments, Literal("</tool_call>")});
//   });
//
// Regular parts are copied where they are used; what nests (the objects and arrays of a schema) is a rule of
// the book and is called. Parts are immutable values, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::constraint {

struct Part;
struct Dfa;
using PartRef = std::shared_ptr<const Part>;

struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;  // inclusive
};

struct Part {
  using Bytes = std::vector<ByteRange>;  // one byte of them
  struct Edge {
    uint32_t from = 0;
    uint32_t to = 0;
    PartRef label;  // null: nothing is read
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

// What a rule is beside its text. A list of distinct items calls the rule of its items, one and the same for
// all, and no other; between two of them, and before the list's end, it reads something. No two items of one
// list may have the same text. The rule of an item calls none.
enum class RuleKind : uint8_t { kText, kDistinctList, kDistinctItem };

// The rules that parts may call, also each other and themselves. One thread.
class RuleBook {
 public:
  uint32_t Declare(RuleKind kind = RuleKind::kText) {
    bodies_.emplace_back();
    kinds_.push_back(kind);
    return static_cast<uint32_t>(bodies_.size() - 1);
  }
  // REQUIRES: declared.
  void Define(uint32_t rule, PartRef body) { bodies_[rule] = std::move(body); }
  uint32_t size() const { return static_cast<uint32_t>(bodies_.size()); }
  const PartRef& body(uint32_t rule) const { return bodies_[rule]; }  // null: matches nothing
  RuleKind kind(uint32_t rule) const { return kinds_[rule]; }

 private:
  std::vector<PartRef> bodies_;
  std::vector<RuleKind> kinds_;
};

PartRef Bytes(Part::Bytes ranges);  // no ranges: matches nothing
PartRef Byte(uint8_t first, uint8_t last);
PartRef Literal(std::string_view text);
PartRef Call(uint32_t rule);
PartRef Automaton(std::shared_ptr<const Dfa> dfa);
PartRef Sequence(std::vector<PartRef> parts);
PartRef Choice(std::vector<PartRef> parts);  // of none: matches nothing
PartRef Optional(PartRef part);
PartRef Repeat(const PartRef& part, uint32_t min, std::optional<uint32_t> max);  // no max: without bound
PartRef Nothing();                                                               // the empty text
PartRef Never();                                                                 // matches no text
bool IsNever(const PartRef& part);                                               // made by Never()

// A special token of the vocabulary (<|im_end|>), as itself: its text written out in other tokens is not it.
PartRef SpecialToken(api::TokenId id);
// The bytes that stand for it inside a grammar; none of them begins or continues UTF-8 text.
std::string SpecialTokenBytes(api::TokenId id);

// Any bytes, none of them from a special token. What the model writes is not looked at.
PartRef FreeText();
// As FreeText(), up to and with the first `marker`: Sequence({TextUntil("<tool_call>"), ...}) begins to
// constrain after a marker. The marker is text or what SpecialTokenBytes() gives. REQUIRES: not empty.
PartRef TextUntil(std::string_view marker);
// As FreeText(), of texts in which `marker` does not occur.
PartRef TextWithout(std::string_view marker);

}  // namespace quire::runner::constraint
