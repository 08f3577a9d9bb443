// The keywords of schemas, but for those that lead to other schemas for the same value.
#include "runner/constraint/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "api/base/ascii.h"
#include "runner/constraint/formats.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using api::Json;
using Outcome = api::Result<void>;

constexpr auto kTypeNames = std::to_array<std::pair<std::string_view, Types>>({
    {"null", kNull},
    {"boolean", kBoolean},
    {"object", kObject},
    {"array", kArray},
    {"string", kString},
    {"integer", kInteger},
    {"number", kInteger | kFraction},
});

// A value that OpenAPI's `nullable` beside the keyword adds.
const Json& Null() {
  static const Json null;
  return null;
}

bool IsNullable(const Json& schema) {
  const Json* nullable = FindMember(schema, "nullable");
  return nullable != nullptr && nullable->is_boolean() && nullable->get<bool>();
}

Outcome GetCount(const Keyword& at, uint32_t& out) {
  const bool fits = at.value.is_number() && at.value.get<double>() >= 0 &&
                    at.value.get<double>() <= UINT32_MAX &&
                    std::floor(at.value.get<double>()) == at.value.get<double>();
  if (!fits) return Invalid(at.path, at.name, "an integer of at least 0");
  out = static_cast<uint32_t>(at.value.get<double>());
  return {};
}

Outcome RaiseMin(const Keyword& at, uint32_t& min) {
  uint32_t count = 0;
  if (auto got = GetCount(at, count); !got) return got;
  min = std::max(min, count);
  return {};
}

Outcome LowerMax(const Keyword& at, std::optional<uint32_t>& max) {
  uint32_t count = 0;
  if (auto got = GetCount(at, count); !got) return got;
  max = std::min(max.value_or(count), count);
  return {};
}

Outcome ReadType(SchemaNode& node, const Keyword& at) {
  Types types = 0;
  const Json list = at.value.is_array() ? at.value : Json::array({at.value});
  for (const Json& name : list) {
    const auto* found = kTypeNames.end();
    if (name.is_string()) {
      // Gemini's schemas have them in capitals.
      found = std::ranges::find_if(kTypeNames, [&name](const auto& known) {
        return api::EqualIgnoringCase(known.first, name.get_ref<const std::string&>());
      });
    }
    if (found == kTypeNames.end()) return Invalid(at.path, at.name, "the name of a type or a list of them");
    types |= found->second;
  }
  if (types == 0) return Invalid(at.path, at.name, "the name of a type or a list of them");
  if (IsNullable(at.schema)) types |= kNull;
  node.types &= types;
  return {};
}

constexpr int kValueDepthMax = 32;

bool NestedTooDeep(const Json& value, int depth = 0) {
  if (depth > kValueDepthMax) return true;
  return value.is_structured() &&
         std::ranges::any_of(value, [depth](const Json& inner) { return NestedTooDeep(inner, depth + 1); });
}

void SetAllowedValues(SchemaNode& node, JsonValues values) {
  if (node.values) {
    const SortedValues known(*node.values);
    std::erase_if(values, [&](const Json* value) { return !known.Contains(*value); });
  }
  node.values = std::make_shared<const JsonValues>(std::move(values));
}

Outcome ReadEnum(SchemaNode& node, const Keyword& at) {
  if (!at.value.is_array() || at.value.empty()) return Invalid(at.path, at.name, "a non-empty list");
  if (NestedTooDeep(at.value)) return Unsupported(at.path, at.name, "a value nested too deeply");
  JsonValues values;
  values.reserve(at.value.size());
  for (const Json& value : at.value) values.push_back(&value);
  if (IsNullable(at.schema)) values.push_back(&Null());
  SetAllowedValues(node, std::move(values));
  return {};
}

Outcome ReadConst(SchemaNode& node, const Keyword& at) {
  if (NestedTooDeep(at.value)) return Unsupported(at.path, at.name, "a value nested too deeply");
  JsonValues values = {&at.value};
  if (IsNullable(at.schema)) values.push_back(&Null());
  SetAllowedValues(node, std::move(values));
  return {};
}

constexpr uint64_t kUnitsPerProperty = 8;  // of an index, also for its memory

// `properties`, `patternProperties` and `additionalProperties` of a schema go together: the first of them met
// reads all.
Outcome ReadProperties(SchemaNode& node, const Keyword& at) {
  const Json* properties = FindMember(at.schema, "properties");
  const Json* patterns = FindMember(at.schema, "patternProperties");
  const Json* additional = FindMember(at.schema, "additionalProperties");
  if (properties != nullptr && !properties->is_object()) return Invalid(at.path, "properties", "an object");
  if (patterns != nullptr && !patterns->is_object())
    return Invalid(at.path, "patternProperties", "an object");
  const std::string_view first = properties != nullptr ? "properties"
                                 : patterns != nullptr ? "patternProperties"
                                                       : at.name;
  if (at.name != first) return {};
  ObjectRules rules;
  rules.properties = properties;
  rules.path = at.path;
  if (additional != nullptr)
    rules.additional.emplace(SchemaRef{additional, at.path.Member("additionalProperties")});
  if (properties != nullptr) {
    CountWork(kUnitsPerProperty * properties->size());
    auto by_name = std::make_shared<MemberIndex>();
    for (const auto& [name, schema] : properties->get_ref<const Json::object_t&>())
      by_name->try_emplace(name, &schema);
    rules.by_name = std::move(by_name);
  }
  if (patterns != nullptr) {
    CountWork(kUnitsPerProperty * patterns->size());
    const SchemaPath path = at.path.Member("patternProperties");
    auto list = std::make_shared<std::vector<PatternRule>>();
    for (const auto& [pattern, schema] : patterns->get_ref<const Json::object_t&>())
      list->push_back({pattern, {&schema, path.Member(pattern)}});
    rules.patterns = std::move(list);
  }
  node.objects.push_back(std::move(rules));
  return {};
}

// What no schema for the same object speaks of.
Outcome ReadUnevaluated(SchemaNode& node, const Keyword& at) {
  node.unevaluated = SchemaRef{&at.value, at.ValuePath()};
  return {};
}

Outcome ReadRequired(SchemaNode& node, const Keyword& at) {
  if (at.value.is_boolean()) return {};  // of the oldest drafts: said of the property that it stands in
  if (!at.value.is_array()) return Invalid(at.path, at.name, "a list of strings");
  for (const Json& name : at.value) {
    if (!name.is_string()) return Invalid(at.path, at.name, "a list of strings");
    node.required.Add(name.get_ref<const std::string&>());
  }
  return {};
}

Outcome ReadPropertyNames(SchemaNode& node, const Keyword& at) {
  node.property_names.push_back({&at.value, at.ValuePath()});
  return {};
}

// The schemas of a list.
SchemaRefs RefsOf(const Json& list, const SchemaPath& path) {
  SchemaRefs refs;
  refs.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) refs.push_back({&list[i], path.Item(i)});
  return refs;
}

// `prefixItems` with `items`, or the older `items` list with `additionalItems`.
Outcome ReadItems(SchemaNode& node, const Keyword& at) {
  const Json* prefix = FindMember(at.schema, "prefixItems");
  const Json* items = FindMember(at.schema, "items");
  const Json* additional = FindMember(at.schema, "additionalItems");
  const Json* unevaluated = FindMember(at.schema, "unevaluatedItems");
  const bool older = items != nullptr && items->is_array();
  if (at.name == "additionalItems" && items != nullptr) return {};
  if (at.name == "unevaluatedItems" && (items != nullptr || prefix != nullptr)) return {};
  if (at.name == "items" && prefix != nullptr) return {};  // read with prefixItems
  if (older && prefix != nullptr) return Invalid(at.path, "items", "a schema when prefixItems is present");
  ArrayRules rules;
  const std::string_view name = older ? "items" : "prefixItems";
  const Json* list = older ? items : prefix;
  if (list != nullptr) {
    if (!list->is_array()) return Invalid(at.path, name, "a list of schemas");
    rules.prefix = std::make_shared<const SchemaRefs>(RefsOf(*list, at.path.Member(name)));
  }
  if (older && additional != nullptr) rules.rest = SchemaRef{additional, at.path.Member("additionalItems")};
  if (!older && items != nullptr) rules.rest = SchemaRef{items, at.path.Member("items")};
  if (items == nullptr && unevaluated != nullptr)
    rules.rest = SchemaRef{unevaluated, at.path.Member("unevaluatedItems")};
  node.arrays.push_back(std::move(rules));
  return {};
}

Outcome ReadUnique(SchemaNode& node, const Keyword& at) {
  if (!at.value.is_boolean()) return Invalid(at.path, at.name, "a boolean");
  if (at.value.get<bool>()) node.unique_path = at.path;
  return {};
}

Outcome ReadText(const Keyword& at, std::vector<SchemaNode::Text>& out) {
  if (!at.value.is_string()) return Invalid(at.path, at.name, "a string");
  out.push_back({at.value.get_ref<const std::string&>(), at.path});
  return {};
}

Outcome ReadFormat(SchemaNode& node, const Keyword& at) {
  if (!at.value.is_string()) return Invalid(at.path, at.name, "a string");
  const auto& format = at.value.get_ref<const std::string&>();
  const bool narrow = format == "int32";
  if (narrow || format == "int64") {
    const int64_t least = narrow ? INT32_MIN : INT64_MIN, most = narrow ? INT32_MAX : INT64_MAX;
    node.bounds.Raise({.value = static_cast<double>(least), .integer = least});
    node.bounds.Lower({.value = static_cast<double>(most), .integer = most});
  } else if (PatternOfFormat(format)) {
    node.formats.push_back({format, at.path});
  }
  return {};
}

// Ours, of custom tools.
Outcome ReadGrammar(SchemaNode& node, const Keyword& at) {
  const Json* syntax = at.value.is_object() ? FindMember(at.value, "syntax") : nullptr;
  const Json* definition = at.value.is_object() ? FindMember(at.value, "definition") : nullptr;
  const bool known = syntax != nullptr && (*syntax == "lark" || *syntax == "regex");
  if (!known || definition == nullptr || !definition->is_string()) {
    return Invalid(at.path, at.name, "a definition with the syntax \"lark\" or \"regex\"");
  }
  node.grammars.push_back({&at.value, at.ValuePath()});
  return {};
}

Outcome ReadBound(SchemaNode& node, const Keyword& at) {
  const bool lower = at.name == "minimum" || at.name == "exclusiveMinimum";
  bool exclusive = at.name.starts_with("exclusive");
  if (exclusive && at.value.is_boolean()) return {};  // the older form: said of the other keyword
  if (!at.value.is_number()) return Invalid(at.path, at.name, "a number");
  const Json* older = FindMember(at.schema, lower ? "exclusiveMinimum" : "exclusiveMaximum");
  if (older != nullptr && older->is_boolean()) exclusive |= older->get<bool>();
  NumberBounds::Bound bound = NumberBounds::BoundOf(at.value);
  bound.exclusive = exclusive;
  lower ? node.bounds.Raise(bound) : node.bounds.Lower(bound);
  return {};
}

Outcome ReadMultipleOf(SchemaNode& node, const Keyword& at) {
  if (!at.value.is_number() || at.value.get<double>() <= 0)
    return Invalid(at.path, at.name, "a number greater than 0");
  const auto step = DecimalStepOf(at.value);
  if (!step) return Unsupported(at.path, at.name, "of this number");
  node.steps.push_back(*step);
  if (step->places == 0) node.types &= static_cast<Types>(~kFraction);
  return {};
}

// Not that it never matches, but that automata cannot say so.
Outcome Refuse(SchemaNode&, const Keyword& at) { return Unsupported(at.path, at.name); }

bool OnlyHas(const Json& schema, std::initializer_list<std::string_view> names) {
  return std::ranges::all_of(schema.get_ref<const Json::object_t&>(), [&names](const auto& member) {
    return std::ranges::find(names, member.first) != names.end() || !IsKeyword(member.first);
  });
}

Outcome ReadNot(SchemaNode& node, const Keyword& at);

// `not` of what has one keyword that is known.
Outcome ExcludeOne(SchemaNode& node, const Keyword& at, std::string_view name, const Json& value) {
  if (name == "type" && (value.is_string() || value.is_array())) {
    SchemaNode excluded;
    if (auto read = ReadType(excluded, {at.value, value, at.path, "type"}); !read) return read;
    if ((excluded.types & (kInteger | kFraction)) == kInteger)
      return Unsupported(at.path, at.name, "of integers");
    node.types &= static_cast<Types>(~excluded.types);
    return {};
  }
  if (name == "const" || name == "enum") {
    if (name == "enum" && !value.is_array()) return Invalid(at.path, "enum", "a non-empty list");
    for (const Json& one : name == "enum"
                               ? std::vector<std::reference_wrapper<const Json>>(value.begin(), value.end())
                               : std::vector<std::reference_wrapper<const Json>>{value}) {
      if (one.is_structured()) return Unsupported(at.path, at.name, "of objects and arrays");
      node.excluded.push_back(&one);
    }
    return {};
  }
  if (name == "pattern" && value.is_string()) {
    node.patterns.push_back({value.get_ref<const std::string&>(), at.ValuePath(), /*negated=*/true});
    return {};
  }
  if (name == "required" && value.is_array() && value.size() == 1 && value[0].is_string()) {
    node.absent.Add(value[0].get_ref<const std::string&>());
    return {};
  }
  if (name == "anyOf" && value.is_array()) {
    for (const Json& one : value) {
      if (auto read = ReadNot(node, {at.schema, one, at.path, at.name}); !read) return read;
    }
    return {};
  }
  return Unsupported(at.path, at.name, "of this schema");
}

Outcome ReadNot(SchemaNode& node, const Keyword& at) {
  const Json& schema = at.value;
  if (schema.is_boolean()) {
    if (schema.get<bool>()) node.types = 0;
    return {};
  }
  if (!schema.is_object()) return Invalid(at.path, at.name, "a schema");
  if (OnlyHas(schema, {})) {
    node.types = 0;
    return {};
  }
  // A string that is not one of some: `type` says nothing more.
  if (const Json* values = FindMember(schema, "enum"); values != nullptr && OnlyHas(schema, {"enum", "type"}))
    return ExcludeOne(node, at, "enum", *values);
  if (const Json* value = FindMember(schema, "const"); value != nullptr && OnlyHas(schema, {"const", "type"}))
    return ExcludeOne(node, at, "const", *value);
  for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
    if (IsKeyword(name) && OnlyHas(schema, {name})) return ExcludeOne(node, at, name, value);
  }
  return Unsupported(at.path, at.name, "of this schema");
}

struct Reader {
  std::string_view keyword;
  Outcome (*read)(SchemaNode& node, const Keyword& at);
};

constexpr auto kReaders = std::to_array<Reader>({
    {"type", ReadType},
    {"enum", ReadEnum},
    {"const", ReadConst},
    {"properties", ReadProperties},
    {"additionalProperties", ReadProperties},
    {"patternProperties", ReadProperties},
    {"unevaluatedProperties", ReadUnevaluated},
    {"required", ReadRequired},
    {"propertyNames", ReadPropertyNames},
    {"minProperties", [](SchemaNode& n, const Keyword& at) { return RaiseMin(at, n.min_properties); }},
    {"maxProperties", [](SchemaNode& n, const Keyword& at) { return LowerMax(at, n.max_properties); }},
    {"prefixItems", ReadItems},
    {"items", ReadItems},
    {"additionalItems", ReadItems},
    {"unevaluatedItems", ReadItems},
    {"minItems", [](SchemaNode& n, const Keyword& at) { return RaiseMin(at, n.items.min); }},
    {"maxItems", [](SchemaNode& n, const Keyword& at) { return LowerMax(at, n.items.max); }},
    {"uniqueItems", ReadUnique},
    {"minLength", [](SchemaNode& n, const Keyword& at) { return RaiseMin(at, n.lengths.min); }},
    {"maxLength", [](SchemaNode& n, const Keyword& at) { return LowerMax(at, n.lengths.max); }},
    {"pattern", [](SchemaNode& n, const Keyword& at) { return ReadText(at, n.patterns); }},
    {"format", ReadFormat},
    {kGrammarKeyword, ReadGrammar},
    {"minimum", ReadBound},
    {"maximum", ReadBound},
    {"exclusiveMinimum", ReadBound},
    {"exclusiveMaximum", ReadBound},
    {"multipleOf", ReadMultipleOf},
    {"not", ReadNot},
    {"contains", Refuse},
    {"minContains", Refuse},
    {"maxContains", Refuse},
});

// Left out: an answer need not satisfy them.
constexpr auto kLoosened = std::to_array<std::string_view>(
    {"if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"});
// Keywords that lead to other schemas for the same value.
constexpr auto kCombinators =
    std::to_array<std::string_view>({"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf"});

}  // namespace

std::unexpected<api::Error> Invalid(const SchemaPath& path, std::string_view keyword, std::string_view must) {
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("{}: \"{}\" must be {}", path.Text(), keyword, must));
}

std::unexpected<api::Error> Unsupported(const SchemaPath& path, std::string_view keyword,
                                        std::string_view why) {
  return api::Fail(api::ErrorCode::kUnsupported,
                   fmt::format("{}: the keyword \"{}\" is not supported{}{}", path.Text(), keyword,
                               why.empty() ? "" : " ", why));
}

bool IsKeyword(std::string_view name) {
  return std::ranges::find(kReaders, name, &Reader::keyword) != kReaders.end() || IsLoosened(name) ||
         std::ranges::find(kCombinators, name) != kCombinators.end();
}

bool IsLoosened(std::string_view name) { return std::ranges::find(kLoosened, name) != kLoosened.end(); }

Outcome ReadKeyword(SchemaNode& node, const Keyword& at) {
  const auto* found = std::ranges::find(kReaders, at.name, &Reader::keyword);
  if (found == kReaders.end()) return {};
  ++node.assertions;
  return found->read(node, at);
}

}  // namespace quire::runner::constraint
