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
  SchemaCompiler(const api::Json& root, RuleBook& rules) : root_(root), rules_(rules), reader_(root) {}
  api::Result<PartRef> Run();

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
  PartRef String(const SchemaNode& node);
  PartRef Number(const SchemaNode& node);
  PartRef Object(const SchemaNode& node);
  PartRef Array(const SchemaNode& node);
  PartRef ArrayItem(const SchemaNode& node, size_t position);

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

  void Fail(api::Error error);
  template <class T>
  T Checked(api::Result<T> result, T otherwise, const std::string& path = {});

  const api::Json& root_;
  RuleBook& rules_;
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
