// Compiles what SchemaReader reads. Internal to JsonSchema().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/constraint/automaton.h"
#include "runner/constraint/schema_node.h"

namespace quire::runner::constraint {

// After the first error everything gives Never(); Run() reports it.
class SchemaCompiler {
 public:
  SchemaCompiler(const api::Json& root, RuleBook& rules, const Words& words = {})
      : root_(root), rules_(rules), words_(words), reader_(root) {}
  api::Result<PartRef> Run();
  // The members of an object as PythonArguments() has them.
  api::Result<PartRef> RunAsArguments();

 private:
  struct Entry {
    bool done = false;
    std::optional<uint32_t> rule;  // once something refers to it while it is compiled
    PartRef part;
  };

  // A value for which all schemas hold. What is asked for again while it is compiled is a call of itself.
  PartRef Value(SchemaRefs refs);
  PartRef Compile(const SchemaRefs& refs);
  // The node with one choice of each of its alternatives; every combination.
  std::vector<SchemaNode> Expand(const SchemaNode& node);
  PartRef Leaf(const SchemaNode& node);
  const AnyJson& Any();

  PartRef Values(const SchemaNode& node);
  // Of `one_spelling` every text is written in one way.
  PartRef String(const SchemaNode& node, bool one_spelling = false);
  PartRef Number(const SchemaNode& node);
  PartRef Object(const SchemaNode& node);
  PartRef Array(const SchemaNode& node);
  PartRef ArrayItem(const SchemaNode& node, size_t position);
  // Its items by position, the last for all that follow.
  PartRef ArrayOf(const SchemaNode& node, const std::vector<PartRef>& items, Lengths count, RuleKind kind);
  // An array of `uniqueItems`.
  PartRef DistinctArray(const SchemaNode& node);
  // Its items, every value in one way, so that equal ones have equal texts.
  PartRef DistinctItem(const SchemaNode& node);
  PartRef DistinctLeaf(const SchemaNode& leaf);
  PartRef DistinctNumber(const SchemaNode& leaf);

  // Schemas that hold for the property `name`.
  static SchemaRefs PropertyRefs(const SchemaNode& node, std::string_view name);
  static SchemaRefs AdditionalRefs(const SchemaNode& node);
  static std::vector<std::string> PropertyNames(const SchemaNode& node);
  PartRef AdditionalKey(const SchemaNode& node, const std::vector<std::string>& names);
  bool NameAllowed(const SchemaNode& node, const std::string& name);
  PartRef ObjectMembers(const SchemaNode& node);

  // Whether no value satisfies both; false when that cannot be told.
  bool Disjoint(const SchemaNode& a, const SchemaNode& b);
  bool DisjointObjects(const SchemaNode& a, const SchemaNode& b);
  bool DisjointTypes(const SchemaNode& a, const SchemaNode& b, Types common);
  bool MaySatisfy(const api::Json& value, const SchemaNode& node);
  // Those of `enum` and `const` for which the other keywords hold.
  std::vector<api::Json> AllowedValues(const SchemaNode& node);

  void Fail(api::Error error);
  template <class T>
  T Checked(api::Result<T> result, T otherwise, const std::string& path = {});

  const api::Json& root_;
  RuleBook& rules_;
  const Words words_;
  SchemaReader reader_;
  std::optional<AnyJson> any_;
  std::map<std::vector<const api::Json*>, Entry> entries_;
  int depth_ = 0;
  std::optional<api::Error> error_;
};

template <class T>
T SchemaCompiler::Checked(api::Result<T> result, T otherwise, const std::string& path) {
  if (result) return std::move(*result);
  api::Error error = std::move(result.error());
  if (!path.empty()) error.message = path + ": " + error.message;
  Fail(std::move(error));
  return otherwise;
}

}  // namespace quire::runner::constraint
