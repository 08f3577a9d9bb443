// A JSON schema as it applies to one value: its own keywords and those of what it refers to, merged.
//
// Nodes are copied for every combination of alternatives: what a client can make long is shared by the
// copies, or part of the root.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/json/type.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/constraint/json_grammar.h"
#include "runner/constraint/multiples.h"
#include "runner/constraint/numbers.h"
#include "runner/constraint/schema_path.h"

namespace quire::runner::constraint {

struct SchemaRef {
  const api::Json* schema = nullptr;  // a boolean or an object, inside the root
  SchemaPath path;                    // "#/properties/a"
};
using SchemaRefs = std::vector<SchemaRef>;  // all of them hold

// Types as bits. Integers and other numbers are distinguished.
using Types = uint8_t;
inline constexpr Types kNull = 1, kBoolean = 2, kObject = 4, kArray = 8, kString = 16, kInteger = 32,
                       kFraction = 64, kAllTypes = 127;
Types TypeOf(const api::Json& value);

// The members of an object by name; the first of equal names.
// Sorted, not hashed: a client can choose names of the same hash.
using MemberIndex = std::map<std::string_view, const api::Json*>;

// Texts of the root without duplicates, in the order in which they came. Copies share them until one of them
// gets more.
class NameList {
 public:
  void Add(std::string_view name);
  bool Contains(std::string_view name) const { return list_ && list_->known.contains(name); }
  std::span<const std::string_view> names() const {
    return list_ ? std::span<const std::string_view>(list_->names) : std::span<const std::string_view>();
  }
  bool empty() const { return names().empty(); }

 private:
  struct List {
    std::vector<std::string_view> names;
    std::set<std::string_view> known;  // sorted, as MemberIndex
  };
  std::shared_ptr<List> list_;  // null: none
};

// Values of an enum or const, inside the root.
using JsonValues = std::vector<const api::Json*>;

// The keywords of one schema about objects (arrays). They apply together; several schemas may each have some.
struct PatternRule {
  std::string_view pattern;
  SchemaRef value;
};
struct ObjectRules {
  const api::Json* properties = nullptr;                               // null: none
  std::shared_ptr<const MemberIndex> by_name = nullptr;                // of them; null: none
  std::shared_ptr<const std::vector<PatternRule>> patterns = nullptr;  // null: none
  std::optional<SchemaRef> additional = {};  // of properties that match none of them
  SchemaPath path;
};
struct ArrayRules {
  std::shared_ptr<const SchemaRefs> prefix;  // by position
  std::optional<SchemaRef> rest;
};

struct SchemaNode {
  using Within = std::vector<const api::Json*>;  // schemas that are being read
  struct Text {
    std::string_view text;  // of the root
    SchemaPath path;
    bool negated = false;
  };
  struct Alternatives {
    SchemaRefs choices;
    SchemaPath path;
    Within within;
  };

  int assertions = 0;  // keywords met, alternatives aside
  SchemaPath path;     // of the first schema
  Types types = kAllTypes;
  std::shared_ptr<const JsonValues> values;  // enum, const; null: any
  JsonValues excluded;                       // none of them an object or an array
  std::vector<ObjectRules> objects;
  std::optional<SchemaRef> unevaluated;  // of properties that no other rule speaks of
  NameList required;
  NameList absent;
  SchemaRefs property_names;
  uint32_t min_properties = 0;
  std::optional<uint32_t> max_properties;
  std::vector<ArrayRules> arrays;
  Lengths items;
  SchemaPath unique_path;  // not empty: items must differ
  Lengths lengths;         // of strings
  std::vector<Text> patterns;
  std::vector<Text> formats;  // of strings
  SchemaRefs grammars;        // of strings: {"syntax", "definition"}
  NumberBounds bounds;
  std::vector<DecimalStep> steps;  // multipleOf
  std::vector<std::shared_ptr<const Alternatives>> alternatives;
  std::unordered_set<const api::Json*> merged;  // schemas that the node already has, wherever they were met

  bool HasTextRules() const;
  bool Excludes(const api::Json& value) const;
};

struct Keyword;

// Reads the schemas of one root, which must outlive it.
class SchemaReader {
 public:
  // `loosens`: a keyword that cannot be enforced is left out, and the builder told.
  SchemaReader(const api::Json& root, GrammarBuilder& builder, bool loosens);
  ~SchemaReader();

  // Adds what `ref` says, once: a schema that is met again adds nothing, so that schemas that refer to each
  // other along many paths are read once each. kUnsupported names a keyword that is not supported and where
  // it stands, kInvalidArgument one whose value is not what it must be.
  api::Result<void> Merge(SchemaNode& node, const SchemaRef& ref, SchemaNode::Within within = {}) const;
  // Follows a schema that only refers to another.
  api::Result<SchemaRef> Follow(SchemaRef ref) const;

 private:
  struct Names;
  api::Result<SchemaRef> Resolve(const api::Json& reference, const SchemaPath& path) const;
  const api::Json* DocumentOf(std::string_view name) const;
  const Names& NamesOf() const;
  api::Result<void> ReadMember(SchemaNode& node, const Keyword& at, const SchemaNode::Within& within) const;
  api::Result<void> ReadCombinator(SchemaNode& node, const Keyword& at,
                                   const SchemaNode::Within& within) const;

  const api::Json& root_;
  GrammarBuilder& builder_;
  const bool loosens_;
  mutable std::unique_ptr<Names> names_;  // once a reference needs them
};

// Values of an enum, for searching.
class SortedValues {
 public:
  explicit SortedValues(JsonValues values);
  bool Contains(const api::Json& value) const;

 private:
  JsonValues sorted_;
};

// A member of an object that is not null; null when there is none.
const api::Json* FindMember(const api::Json& object, std::string_view name);

}  // namespace quire::runner::constraint
