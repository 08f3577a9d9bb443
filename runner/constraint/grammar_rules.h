// Rules of a grammar notation (GBNF, Lark) and what they compile to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/constraint/code_points.h"
#include "runner/constraint/grammar_expr.h"

namespace quire::runner::constraint {

// What a grammar says, before it is known which rules call themselves.
struct RuleNode;
using RuleRef = std::unique_ptr<const RuleNode>;
struct RuleNode {
  enum class Kind : uint8_t { kText, kSet, kExpr, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kText;
  std::string text = {};            // kText; the source of kExpr
  CodePoints set = {};              // kSet
  ExprRef expr = nullptr;           // kExpr: encoded as the rest will be
  size_t rule = 0;                  // kRule
  std::vector<RuleRef> parts = {};  // kSequence, kChoice; one of kRepeat
  uint32_t min = 0;                 // kRepeat
  std::optional<uint32_t> max = {};
};

struct GrammarRule {
  std::string name;
  int used_in_line = 0;
  RuleRef body = nullptr;  // null: not defined
};

// The texts of the rule `root`. Rules that call themselves, directly or through others, and large ones become
// rules of the builder, others are copied where they are used. `encode` writes one character of a set: Utf8
// or JsonCharacter. REQUIRES: all rules are defined, and every kRule is one of them.
ExprRef CompileRules(std::span<const GrammarRule> rules, size_t root, GrammarBuilder& builder,
                     ExprRef (*encode)(const CodePoints& set));

}  // namespace quire::runner::constraint
