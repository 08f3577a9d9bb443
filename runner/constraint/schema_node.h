// A JSON schema as it applies to one value: its own keywords and those of what it refers to, merged.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/json/type.h"
#include "runner/constraint/json_grammar.h"
#include "runner/constraint/numbers.h"

namespace quire::runner::constraint {

struct SchemaRef {
  const api::Json* schema = nullptr;  // a boolean or an object, inside the root
  std::string path;                   // "#/properties/a"
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

// Texts without duplicates, in the order in which they came.
class NameList {
 public:
  void Add(const std::string& name) {
    if (known_.insert(name).second) names_.push_back(name);
  }
  bool Contains(const std::string& name) const { return known_.contains(name); }
  const std::vector<std::string>& names() const { return names_; }
  bool empty() const { return names_.empty(); }

 private:
  std::vector<std::string> names_;
  std::set<std::string> known_;  // sorted, as MemberIndex
};

// The keywords of one schema about objects (arrays). They apply together; several schemas may each have some.
struct ObjectRules {
  const api::Json* properties = nullptr;                 // null: none
  std::shared_ptr<const MemberIndex> by_name = nullptr;  // of them; null: none
  std::optional<SchemaRef> additional;                   // of properties that are not named
  std::string path;
};
struct ArrayRules {
  SchemaRefs prefix;  // by position
  std::optional<SchemaRef> rest;
};

struct SchemaNode {
  using Within = std::vector<const api::Json*>;  // schemas that are being read
  struct Text {
    std::string text;
    std::string path;
  };
  struct Alternatives {
    SchemaRefs choices;
    bool exclusive = false;  // oneOf
    std::string path;
    Within within;
  };

  int assertions = 0;  // keywords met, alternatives aside
  std::string path;    // of the first schema
  Types types = kAllTypes;
  std::optional<std::vector<api::Json>> values;  // enum, const
  std::vector<ObjectRules> objects;
  NameList required;
  SchemaRefs property_names;
  uint32_t min_properties = 0;
  std::optional<uint32_t> max_properties;
  std::vector<ArrayRules> arrays;
  Lengths items;
  std::string unique_path;  // not empty: items must differ
  Lengths lengths;          // of strings
  std::vector<Text> patterns;
  std::vector<Text> formats;  // of strings
  NumberBounds bounds;
  std::vector<Alternatives> alternatives;
  std::unordered_set<const api::Json*> merged;  // schemas that the node already has, wherever they were met

  bool HasTextRules() const { return !patterns.empty() || !formats.empty(); }
};

// Reads the schemas of one root, which must outlive it.
class SchemaReader {
 public:
  explicit SchemaReader(const api::Json& root) : root_(root) {}

  // Adds what `ref` says, once: a schema that is met again adds nothing, so that schemas that refer to each other along
  // many paths are read once each. kUnsupported names a keyword that is not supported and where it stands,
  // kInvalidArgument one whose value is not what it must be.
  api::Result<void> Merge(SchemaNode& node, const SchemaRef& ref, SchemaNode::Within within = {}) const;
  // Follows a schema that only refers to another.
  api::Result<SchemaRef> Follow(SchemaRef ref) const;

 private:
  friend struct KeywordTable;
  api::Result<SchemaRef> Resolve(const api::Json& reference, const std::string& path) const;

  const api::Json& root_;
};

// Values of an enum, for searching. The values must outlive it.
class SortedValues {
 public:
  explicit SortedValues(const std::vector<api::Json>& values);
  bool Contains(const api::Json& value) const;

 private:
  std::vector<const api::Json*> sorted_;
};

// A member of an object that is not null; null when there is none.
const api::Json* FindMember(const api::Json& object, std::string_view name);
// The path of a member inside one.
std::string MemberPath(const std::string& path, std::string_view name);

}  // namespace quire::runner::constraint
