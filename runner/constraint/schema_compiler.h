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

// After the first error everything gives Never(); Run() reports it.
class SchemaCompiler {
 public:
  SchemaCompiler(const api::Json& root, GrammarBuilder& builder, const JsonStyle& style = {})
      : root_(root), builder_(builder), style_(style), reader_(root) {}
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
  // Adds the node with one choice of each of its alternatives; every combination.
  void Expand(SchemaNode node, std::vector<SchemaNode>& out);
  // One error where two nodes that stand in different groups can both match. A group ends where the next begins.
  void RefuseOverlaps(std::span<const SchemaNode> nodes, const std::vector<size_t>& begins,
                      const SchemaPath& path);
  ExprRef Leaf(const SchemaNode& node);
  const AnyJson& Any();

  ExprRef Values(const SchemaNode& node);
  // Of `one_spelling` every text is written in one way.
  ExprRef String(const SchemaNode& node, bool one_spelling = false);
  ExprRef Number(const SchemaNode& node);
  ExprRef Object(const SchemaNode& node);
  ExprRef Array(const SchemaNode& node);
  ExprRef ArrayItem(const SchemaNode& node, size_t position);
  // Its items by position, the last for all that follow.
  ExprRef ArrayOf(const SchemaNode& node, const std::vector<ExprRef>& items, Lengths count, RuleKind kind);
  // An array of `uniqueItems`.
  ExprRef DistinctArray(const SchemaNode& node);
  // Its items, every value in one way, so that equal ones have equal texts.
  ExprRef DistinctItem(const SchemaNode& node);
  ExprRef DistinctLeaf(const SchemaNode& leaf);
  ExprRef DistinctNumber(const SchemaNode& leaf);

  // Schemas that hold for the property `name`.
  // Named properties, one after the other. `member` writes the property of this name, whose values are `refs`;
  // Never() where it has none.
  api::Result<ExprRef> NamedMembers(
      const ExprRef& separator,
      const std::function<api::Result<ExprRef>(std::string_view name, const SchemaRefs& refs)>& member);

  static SchemaRefs PropertyRefs(const SchemaNode& node, std::string_view name);
  static SchemaRefs AdditionalRefs(const SchemaNode& node);
  static NameList PropertyNames(const SchemaNode& node);
  static bool IsClosed(const SchemaNode& node, size_t names);
  // What every name must match, one for each `propertyNames`; empty after an error.
  std::vector<Dfa> NameRules(const SchemaNode& node);
  ExprRef AdditionalKey(const std::vector<Dfa>& name_rules, std::span<const std::string_view> names,
                        const SchemaPath& path);
  ExprRef ObjectMembers(const SchemaNode& node);

  // Whether no value satisfies both; false when undecided.
  bool Disjoint(const SchemaNode& a, const SchemaNode& b);
  bool DisjointObjects(const SchemaNode& a, const SchemaNode& b);
  bool DisjointTypes(const SchemaNode& a, const SchemaNode& b, Types common);
  bool MaySatisfy(const api::Json& value, const SchemaNode& node);
  // Those of `enum` and `const` for which the other keywords hold.
  JsonValues AllowedValues(const SchemaNode& node);

  void Fail(api::Error error);
  template <class T>
  T Checked(api::Result<T> result, T otherwise, const SchemaPath& path = {});

  const api::Json& root_;
  GrammarBuilder& builder_;
  const JsonStyle style_;
  SchemaReader reader_;
  std::optional<AnyJson> any_;
  std::map<std::vector<const api::Json*>, Entry> entries_;
  int depth_ = 0;
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
