// Compiles what SchemaReader reads. Internal to JsonSchema().
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/constraint/automaton.h"
#include "runner/constraint/schema.h"
#include "runner/constraint/schema_node.h"

namespace quire::runner::constraint {

// After the first error everything gives Never(); Run() reports it. Where the schema may be loosened, a value
// that cannot be compiled is any of its types instead, and an alternative that cannot is left out if there is
// another.
class SchemaCompiler {
 public:
  SchemaCompiler(const api::Json& root, GrammarBuilder& builder, const JsonStyle& style = {},
                 Enforcement enforcement = Enforcement::kStrict)
      : root_(root),
        builder_(builder),
        style_(style),
        loosens_(enforcement == Enforcement::kLoose),
        reader_(root, builder, loosens_) {}
  api::Result<ExprRef> Run();
  // The members of an object as PythonArguments() has them.
  api::Result<ExprRef> RunAsArguments();
  // The same as TaggedArguments() has them.
  api::Result<ExprRef> RunAsTaggedArguments(const ArgumentTags& tags);

 private:
  struct Entry {
    bool done = false;
    std::optional<uint32_t> rule;  // once something refers to it while it is compiled
    ExprRef expr;
  };

  // A value that matches all schemas. A recursive request for the same schemas becomes a call of the rule.
  ExprRef Value(SchemaRefs refs);
  ExprRef Compile(const SchemaRefs& refs);
  // Any value of the types that the schemas name.
  ExprRef LooseValue(const SchemaRefs& refs);
  // One of the alternatives that `compile` makes of 0 to `count`; without those that are not supported.
  ExprRef OneOf(size_t count, const std::function<ExprRef(size_t)>& compile);
  // What entries and depth are at a time, so that what failed since leaves nothing behind.
  struct Mark {
    size_t entries = 0;
    int depth = 0;
  };
  Mark mark() const { return {order_.size(), depth_}; }
  void Rewind(const Mark& mark);
  // Adds the node with one choice of each of its alternatives; every combination.
  void Expand(SchemaNode node, std::vector<SchemaNode>& out);
  ExprRef Leaf(const SchemaNode& node);
  const AnyJson& Any();

  ExprRef Values(const SchemaNode& node);
  // With `one_spelling` every text is written in one way, and nothing is called.
  ExprRef String(const SchemaNode& node, bool one_spelling = false);
  // What `pattern`, `format` and `not` ask for, without quotes. REQUIRES: there are some.
  ExprRef RuledText(const SchemaNode& node);
  ExprRef Pattern(const SchemaNode::Text& pattern);
  // A string, with its quotes, of the one grammar that the node has. REQUIRES: there are some.
  ExprRef GrammarString(const SchemaNode& node);
  // Null, true and false, as far as the node allows them.
  void AddLiterals(const SchemaNode& node, std::vector<ExprRef>& kinds) const;
  ExprRef Number(const SchemaNode& node);
  ExprRef Object(const SchemaNode& node);
  ExprRef Array(const SchemaNode& node);
  ExprRef ArrayItem(const SchemaNode& node, size_t position);
  // Its items by position, the last for all that follow.
  ExprRef ArrayOf(const SchemaNode& node, const std::vector<ExprRef>& items, Lengths count, RuleKind kind);
  // An array of `uniqueItems`.
  ExprRef DistinctArray(const SchemaNode& node);
  ExprRef DistinctItem(const SchemaNode& node);
  // Values that match all schemas, each in one way, so that equal ones have equal texts; no objects and
  // arrays but those of lists. Without calls. `check` may fail for what one alternative allows.
  ExprRef OneSpelling(const SchemaRefs& refs, const std::function<void(const SchemaNode&)>& check = {});
  ExprRef DistinctLeaf(const SchemaNode& leaf);
  ExprRef DistinctNumber(const SchemaNode& leaf);

  // Schemas that hold for the property `name`.
  // Named properties, one after the other. `member` writes the property of this name, whose values are
  // `refs`; Never() where it has none.
  api::Result<ExprRef> NamedMembers(
      const ExprRef& separator,
      const std::function<api::Result<ExprRef>(std::string_view name, const SchemaRefs& refs)>& member);

  SchemaRefs PropertyRefs(const SchemaNode& node, std::string_view name);
  // For properties that no rule names, but whose names match these patterns and no other.
  static SchemaRefs AdditionalRefs(const SchemaNode& node, std::span<const PatternRule* const> matched = {});
  // Members that no rule names.
  ExprRef AdditionalMembers(const SchemaNode& node, const std::vector<Dfa>& name_rules,
                            std::span<const std::string_view> names);
  const Dfa& NamePattern(const PatternRule& rule);
  static NameList PropertyNames(const SchemaNode& node);
  static bool IsClosed(const SchemaNode& node, size_t names);
  // What every name must match, one for each `propertyNames`; empty after an error.
  std::vector<Dfa> NameRules(const SchemaNode& node);
  // Names that match all rules, and are none of those.
  Dfa AdditionalNames(const std::vector<Dfa>& name_rules, std::span<const std::string_view> names,
                      const SchemaPath& path);
  ExprRef ObjectMembers(const SchemaNode& node);

  bool MaySatisfy(const api::Json& value, const SchemaNode& node);
  // Those of `enum` and `const` for which the other keywords hold.
  JsonValues AllowedValues(const SchemaNode& node);

  void Fail(api::Error error);
  template <class T>
  T Checked(api::Result<T> result, T otherwise, const SchemaPath& path = {});

  const api::Json& root_;
  GrammarBuilder& builder_;
  const JsonStyle style_;
  const bool loosens_;
  SchemaReader reader_;
  std::optional<AnyJson> any_;
  using Entries = std::map<std::vector<const api::Json*>, Entry>;
  Entries entries_;
  std::vector<Entries::iterator> order_;           // in which they came
  std::map<std::string_view, Dfa> name_patterns_;  // by their text
  std::map<std::pair<uint32_t, uint32_t>, ExprRef>
      counted_strings_;  // without other rules, by least and most
  int depth_ = 0;
  bool exhausted_ =
      false;  // the schema has used up what one may take: no alternative can be left out for that
  std::optional<api::Error> error_;
};

template <class T>
T SchemaCompiler::Checked(api::Result<T> result, T otherwise, const SchemaPath& path) {
  if (result) return std::move(*result);
  api::Error error = std::move(result.error());
  if (!path.empty()) error.message = path.Text() + ": " + error.message;
  Fail(std::move(error));
  return otherwise;
}

}  // namespace quire::runner::constraint
