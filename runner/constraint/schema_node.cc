#include "runner/constraint/schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using api::Json;
using Outcome = api::Result<void>;

constexpr size_t kWithinMax = 64;  // schemas that refer to each other, one inside the other

std::unexpected<api::Error> Invalid(const SchemaPath& path, std::string_view keyword, std::string_view must) {
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("{}: \"{}\" must be {}", path.Text(), keyword, must));
}

std::unexpected<api::Error> Unsupported(const SchemaPath& path, std::string_view keyword,
                                        std::string_view why = {}) {
  return api::Fail(api::ErrorCode::kUnsupported,
                   fmt::format("{}: the keyword \"{}\" is not supported{}{}", path.Text(), keyword,
                               why.empty() ? "" : ": ", why));
}

constexpr auto kTypeNames = std::to_array<std::pair<std::string_view, Types>>({
    {"null", kNull},
    {"boolean", kBoolean},
    {"object", kObject},
    {"array", kArray},
    {"string", kString},
    {"integer", kInteger},
    {"number", kInteger | kFraction},
});

constexpr auto kAnnotations = std::to_array<std::string_view>({
    "$schema",         "$id",           "id",       "$comment",     "$defs",         "definitions",
    "$anchor",         "$vocabulary",   "title",    "description",  "default",       "example",
    "examples",        "deprecated",    "readOnly", "writeOnly",    "discriminator", "contentMediaType",
    "contentEncoding", "contentSchema", "strict",   "externalDocs", "xml",           "propertyOrdering",
});

bool IsAnnotation(std::string_view keyword) {
  return keyword.starts_with("x-") || std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

// One keyword being read.
struct Keyword {
  const Json& schema;  // it stands in
  const Json& value;
  const SchemaPath& path;  // of the schema
  std::string_view name;

  SchemaPath ValuePath() const { return path.Member(name); }
};

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
      found = std::ranges::find(kTypeNames, name.get_ref<const std::string&>(),
                                &std::pair<std::string_view, Types>::first);
    }
    if (found == kTypeNames.end()) return Invalid(at.path, at.name, "the name of a type or a list of them");
    types |= found->second;
  }
  if (types == 0) return Invalid(at.path, at.name, "the name of a type or a list of them");
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
  SetAllowedValues(node, std::move(values));
  return {};
}

Outcome ReadConst(SchemaNode& node, const Keyword& at) {
  if (NestedTooDeep(at.value)) return Unsupported(at.path, at.name, "a value nested too deeply");
  SetAllowedValues(node, {&at.value});
  return {};
}

constexpr uint64_t kUnitsPerProperty = 8;  // of an index, also for its memory

// `properties` and `additionalProperties` of a schema go together: the first of them met reads both.
Outcome ReadProperties(SchemaNode& node, const Keyword& at) {
  const Json* properties = FindMember(at.schema, "properties");
  const Json* additional = FindMember(at.schema, "additionalProperties");
  if (properties != nullptr && !properties->is_object()) return Invalid(at.path, "properties", "an object");
  if (properties != nullptr && at.name != "properties") return {};
  ObjectRules rules{.properties = properties, .by_name = {}, .additional = {}, .path = at.path};
  if (additional != nullptr) rules.additional = SchemaRef{additional, at.path.Member("additionalProperties")};
  if (properties != nullptr) {
    CountWork(kUnitsPerProperty * properties->size());
    auto by_name = std::make_shared<MemberIndex>();
    for (const auto& [name, schema] : properties->get_ref<const Json::object_t&>())
      by_name->try_emplace(name, &schema);
    rules.by_name = std::move(by_name);
  }
  node.objects.push_back(std::move(rules));
  return {};
}

Outcome ReadRequired(SchemaNode& node, const Keyword& at) {
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
  const bool older = items != nullptr && items->is_array();
  if (at.name == "additionalItems" && items != nullptr) return {};
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
  // Widths of numbers: what a number is written with fits the wider ones.
  if (format == "int64" || format == "float" || format == "double" || format == "decimal") return {};
  if (format == "int32") {
    node.bounds.Raise({.value = INT32_MIN, .integer = INT32_MIN});
    node.bounds.Lower({.value = INT32_MAX, .integer = INT32_MAX});
    return {};
  }
  node.formats.push_back({format, at.path});
  return {};
}

Outcome ReadBound(SchemaNode& node, const Keyword& at) {
  const bool lower = at.name == "minimum" || at.name == "exclusiveMinimum";
  bool exclusive = at.name.starts_with("exclusive");
  if (exclusive && at.value.is_boolean()) return {};  // the older form: said of the other keyword
  if (!at.value.is_number()) return Invalid(at.path, at.name, "a number");
  const Json* older = FindMember(at.schema, lower ? "exclusiveMinimum" : "exclusiveMaximum");
  if (older != nullptr && older->is_boolean()) exclusive |= older->get<bool>();
  NumberBounds::Bound bound{.value = at.value.get<double>(), .integer = {}, .exclusive = exclusive};
  const bool fits = at.value.is_number_integer() &&
                    !(at.value.is_number_unsigned() && at.value.get<uint64_t>() > INT64_MAX);
  if (fits) bound.integer = at.value.get<int64_t>();
  lower ? node.bounds.Raise(bound) : node.bounds.Lower(bound);
  return {};
}

Outcome ReadMultipleOf(SchemaNode& node, const Keyword& at) {
  if (!at.value.is_number() || at.value.get<double>() <= 0)
    return Invalid(at.path, at.name, "a number greater than 0");
  if (at.value.get<double>() != 1) return Unsupported(at.path, at.name, "only 1 is supported");
  node.types &= static_cast<Types>(~kFraction);
  return {};
}

Outcome ReadNullable(SchemaNode&, const Keyword& at) {
  if (at.value.is_boolean() && !at.value.get<bool>()) return {};
  return Unsupported(at.path, at.name, R"(write "type": [..., "null"])");
}

Outcome ReadPatternProperties(SchemaNode&, const Keyword& at) {
  if (at.value.is_object() && at.value.empty()) return {};
  return Unsupported(at.path, at.name);
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
    {"patternProperties", ReadPatternProperties},
    {"required", ReadRequired},
    {"propertyNames", ReadPropertyNames},
    {"minProperties", [](SchemaNode& n, const Keyword& at) { return RaiseMin(at, n.min_properties); }},
    {"maxProperties", [](SchemaNode& n, const Keyword& at) { return LowerMax(at, n.max_properties); }},
    {"prefixItems", ReadItems},
    {"items", ReadItems},
    {"additionalItems", ReadItems},
    {"minItems", [](SchemaNode& n, const Keyword& at) { return RaiseMin(at, n.items.min); }},
    {"maxItems", [](SchemaNode& n, const Keyword& at) { return LowerMax(at, n.items.max); }},
    {"uniqueItems", ReadUnique},
    {"minLength", [](SchemaNode& n, const Keyword& at) { return RaiseMin(at, n.lengths.min); }},
    {"maxLength", [](SchemaNode& n, const Keyword& at) { return LowerMax(at, n.lengths.max); }},
    {"pattern", [](SchemaNode& n, const Keyword& at) { return ReadText(at, n.patterns); }},
    {"format", ReadFormat},
    {"minimum", ReadBound},
    {"maximum", ReadBound},
    {"exclusiveMinimum", ReadBound},
    {"exclusiveMaximum", ReadBound},
    {"multipleOf", ReadMultipleOf},
    {"nullable", ReadNullable},
});

// The parts of a JSON pointer, unescaped.
std::vector<std::string> PointerParts(std::string_view pointer) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < pointer.size(); ++i) {
    if (pointer[i] == '/') {
      parts.emplace_back();
      continue;
    }
    if (parts.empty()) return {};
    std::string& part = parts.back();
    if (pointer[i] == '~' && i + 1 < pointer.size()) {
      part += pointer[++i] == '1' ? '/' : '~';
    } else if (pointer[i] == '%' && i + 2 < pointer.size()) {
      part += static_cast<char>(std::strtol(std::string(pointer.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      part += pointer[i];
    }
  }
  return parts;
}

}  // namespace

void NameList::Add(std::string_view name) {
  constexpr uint64_t kUnitsPerName = 16;  // of a copy
  if (Contains(name)) return;
  if (!list_) {
    list_ = std::make_shared<List>();
  } else if (list_.use_count() > 1) {
    CountWork(kUnitsPerName * list_->names.size());
    list_ = std::make_shared<List>(*list_);
  }
  list_->known.insert(name);
  list_->names.push_back(name);
}

SortedValues::SortedValues(JsonValues values) : sorted_(std::move(values)) {
  CountWork(sorted_.size());
  std::ranges::sort(sorted_, [](const Json* a, const Json* b) { return *a < *b; });
}

bool SortedValues::Contains(const Json& value) const {
  CountWork(8);
  const auto at =
      std::ranges::lower_bound(sorted_, &value, [](const Json* a, const Json* b) { return *a < *b; });
  return at != sorted_.end() && **at == value;
}

const Json* FindMember(const Json& object, std::string_view name) {
  const auto& members = object.get_ref<const Json::object_t&>();
  CountWork(1 + members.size() / 4);
  const auto found =
      std::ranges::find(members, name, [](const auto& member) { return std::string_view(member.first); });
  return found == members.end() ? nullptr : &found->second;
}

Types TypeOf(const Json& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  if (value.is_string()) return kString;
  if (value.is_number_float() && std::floor(value.get<double>()) != value.get<double>()) return kFraction;
  return kInteger;
}

api::Result<SchemaRef> SchemaReader::Resolve(const Json& reference, const SchemaPath& path) const {
  if (!reference.is_string()) return Invalid(path, "$ref", "a string");
  const std::string_view text = reference.get_ref<const std::string&>();
  if (!text.starts_with('#') || (text.size() > 1 && text[1] != '/')) {
    return Unsupported(path, "$ref", fmt::format("\"{}\" is not a location in this schema", text));
  }
  const Json* at = &root_;
  for (const std::string& part : PointerParts(text.substr(1))) {
    const Json* next = nullptr;
    if (at->is_object()) {
      next = FindMember(*at, part);
    } else if (at->is_array() && !part.empty() && part.find_first_not_of("0123456789") == std::string::npos &&
               part.size() < 8 && std::stoul(part) < at->size()) {
      next = &(*at)[std::stoul(part)];
    }
    if (next == nullptr) {
      return api::Fail(api::ErrorCode::kInvalidArgument,
                       fmt::format("{}: \"$ref\" \"{}\" cannot be resolved", path.Text(), text));
    }
    at = next;
  }
  return SchemaRef{at, SchemaPath(text)};
}

api::Result<SchemaRef> SchemaReader::Follow(SchemaRef ref) const {
  for (size_t i = 0; i < kWithinMax; ++i) {
    if (!ref.schema->is_object()) return ref;
    const Json* reference = FindMember(*ref.schema, "$ref");
    if (reference == nullptr) return ref;
    for (const auto& [name, value] : ref.schema->get_ref<const Json::object_t&>()) {
      if (name != "$ref" && !IsAnnotation(name)) return ref;
    }
    auto target = Resolve(*reference, ref.path);
    if (!target) return target;
    ref = std::move(*target);
  }
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("{}: \"$ref\" refers to itself", ref.path.Text()));
}

// Keywords that lead to other schemas.
struct KeywordTable {
  static Outcome ReadAllOf(const SchemaReader& reader, SchemaNode& node, const Keyword& at,
                           const SchemaNode::Within& within) {
    const SchemaPath path = at.ValuePath();
    for (size_t i = 0; i < at.value.size(); ++i) {
      auto merged = reader.Merge(node, {&at.value[i], path.Item(i)}, within);
      if (!merged) return merged;
    }
    return {};
  }

  static Outcome Read(const SchemaReader& reader, SchemaNode& node, const Keyword& at,
                      const SchemaNode::Within& within) {
    if (at.name == "$ref") {
      const auto target = reader.Resolve(at.value, at.path);
      if (!target) return std::unexpected(target.error());
      return reader.Merge(node, *target, within);
    }
    if (at.name == "allOf" || at.name == "anyOf" || at.name == "oneOf") {
      if (!at.value.is_array() || at.value.empty()) {
        return Invalid(at.path, at.name, "a non-empty list of schemas");
      }
      if (at.name == "allOf" || at.value.size() == 1) return ReadAllOf(reader, node, at, within);
      node.alternatives.push_back(std::make_shared<const SchemaNode::Alternatives>(
          SchemaNode::Alternatives{.choices = RefsOf(at.value, at.ValuePath()),
                                   .exclusive = at.name == "oneOf",
                                   .path = at.path,
                                   .within = within}));
      return {};
    }
    if (IsAnnotation(at.name)) return {};
    const auto* found = std::ranges::find(kReaders, at.name, &Reader::keyword);
    if (found == kReaders.end()) return Unsupported(at.path, at.name);
    ++node.assertions;
    return found->read(node, at);
  }
};

Outcome SchemaReader::Merge(SchemaNode& node, const SchemaRef& ref, SchemaNode::Within within) const {
  if (node.path.empty()) node.path = ref.path;
  if (ref.schema->is_boolean()) {
    if (!ref.schema->get<bool>()) {
      node.types = 0;
      ++node.assertions;
    }
    return {};
  }
  if (!ref.schema->is_object()) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("{}: a schema must be an object", ref.path.Text()));
  }
  if (std::ranges::find(within, ref.schema) != within.end() || within.size() >= kWithinMax) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("{}: the schema refers only to itself", ref.path.Text()));
  }
  if (!node.merged.insert(ref.schema).second) return {};
  within.push_back(ref.schema);
  for (const auto& [name, value] : ref.schema->get_ref<const Json::object_t&>()) {
    CountWork(8 + (value.is_array() ? value.size() : 0));
    auto read = KeywordTable::Read(*this, node, {*ref.schema, value, ref.path, name}, within);
    if (!read) return read;
  }
  return {};
}

}  // namespace quire::runner::constraint
