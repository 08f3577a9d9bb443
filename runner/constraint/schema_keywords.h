// Keywords of a schema, one at a time. Internal to SchemaReader.
#pragma once

#include <string_view>

#include "runner/constraint/schema_node.h"

namespace quire::runner::constraint {

// A string's grammar, {"syntax": "lark" or "regex", "definition"}. The API layer writes it for custom tools.
inline constexpr std::string_view kGrammarKeyword = "x-grammar";

// One keyword being read.
struct Keyword {
  const api::Json& schema;  // it stands in
  const api::Json& value;
  const SchemaPath& path;  // of the schema
  std::string_view name;

  SchemaPath ValuePath() const { return path.Member(name); }
};

// Adds what the keyword says. Nothing of one that is no keyword, or that leads to other schemas for the same
// value. Errors as of SchemaReader::Merge().
api::Result<void> ReadKeyword(SchemaNode& node, const Keyword& at);

// Whether a schema with this member says more than one without.
bool IsKeyword(std::string_view name);
// Whether the keyword is known and left out.
bool IsLoosened(std::string_view name);

std::unexpected<api::Error> Invalid(const SchemaPath& path, std::string_view keyword, std::string_view must);
std::unexpected<api::Error> Unsupported(const SchemaPath& path, std::string_view keyword,
                                        std::string_view why = {});

}  // namespace quire::runner::constraint
