#include "runner/constraint/schema_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runner/constraint/schema_keywords.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using api::Json;
using Outcome = api::Result<void>;

constexpr size_t kWithinMax = 64;  // schemas that refer to each other, one inside the other

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

bool SchemaNode::HasTextRules() const {
  return !patterns.empty() || !formats.empty() ||
         std::ranges::any_of(excluded, [](const Json* value) { return value->is_string(); });
}

bool SchemaNode::Excludes(const Json& value) const {
  CountWork(excluded.size());
  return std::ranges::any_of(excluded, [&value](const Json* one) { return *one == value; });
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

// Schemas that a reference can name, by `$id` and by `$anchor`.
struct SchemaReader::Names {
  std::map<std::string_view, const Json*> by_id;
  std::map<std::string_view, const Json*> by_anchor;
};

SchemaReader::SchemaReader(const Json& root, GrammarBuilder& builder, bool loosens)
    : root_(root), builder_(builder), loosens_(loosens) {}
SchemaReader::~SchemaReader() = default;

const SchemaReader::Names& SchemaReader::NamesOf() const {
  if (names_) return *names_;
  names_ = std::make_unique<Names>();
  std::vector<const Json*> todo = {&root_};
  while (!todo.empty()) {
    const Json& at = *todo.back();
    todo.pop_back();
    CountWork(4 + at.size());
    if (at.is_object()) {
      const auto add = [&at](auto& names, const char* keyword) {
        const Json* name = FindMember(at, keyword);
        if (name != nullptr && name->is_string()) names.try_emplace(name->get_ref<const std::string&>(), &at);
      };
      add(names_->by_id, "$id");
      add(names_->by_anchor, "$anchor");
      add(names_->by_anchor, "$dynamicAnchor");
    }
    if (!at.is_structured()) continue;
    for (const Json& inner : at) todo.push_back(&inner);
  }
  return *names_;
}

// The schema of a document that a reference names; the root without one.
const Json* SchemaReader::DocumentOf(std::string_view name) const {
  if (name.empty()) return &root_;
  const auto& by_id = NamesOf().by_id;
  const auto found = std::ranges::find_if(by_id, [name](const auto& known) {
    std::string_view id = known.first;
    if (id.ends_with('#')) id.remove_suffix(1);
    return id == name || (id.ends_with(name) && id[id.size() - name.size() - 1] == '/');
  });
  return found == by_id.end() ? nullptr : found->second;
}

api::Result<SchemaRef> SchemaReader::Resolve(const Json& reference, const SchemaPath& path) const {
  if (!reference.is_string()) return Invalid(path, "$ref", "a string");
  const std::string_view text = reference.get_ref<const std::string&>();
  const size_t hash = std::min(text.find('#'), text.size());
  const std::string_view fragment = text.substr(std::min(hash + 1, text.size()));
  const Json* at = DocumentOf(text.substr(0, hash));
  if (at == nullptr)
    return Unsupported(path, "$ref", fmt::format("to \"{}\", which is not in this schema", text));
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = NamesOf().by_anchor.find(fragment);
    at = anchor == NamesOf().by_anchor.end() ? nullptr : anchor->second;
  } else {
    for (const std::string& part : PointerParts(fragment)) {
      const Json* next = nullptr;
      if (at->is_object()) {
        next = FindMember(*at, part);
      } else if (at->is_array() && !part.empty() &&
                 part.find_first_not_of("0123456789") == std::string::npos && part.size() < 8 &&
                 std::stoul(part) < at->size()) {
        next = &(*at)[std::stoul(part)];
      }
      at = next;
      if (at == nullptr) break;
    }
  }
  if (at != nullptr) return SchemaRef{at, SchemaPath(text)};
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("{}: \"$ref\" \"{}\" cannot be resolved", path.Text(), text));
}

api::Result<SchemaRef> SchemaReader::Follow(SchemaRef ref) const {
  for (size_t i = 0; i < kWithinMax; ++i) {
    if (!ref.schema->is_object()) return ref;
    const Json* reference = FindMember(*ref.schema, "$ref");
    if (reference == nullptr) return ref;
    for (const auto& [name, value] : ref.schema->get_ref<const Json::object_t&>()) {
      if (name != "$ref" && (IsKeyword(name) || name == "nullable")) return ref;
    }
    auto target = Resolve(*reference, ref.path);
    if (!target) return target;
    ref = std::move(*target);
  }
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("{}: \"$ref\" refers to itself", ref.path.Text()));
}

namespace {

const Json& NullSchema() {
  static const Json schema = {{"type", "null"}};
  return schema;
}

void AddAlternatives(SchemaNode& node, SchemaRefs choices, const Keyword& at,
                     const SchemaNode::Within& within) {
  node.alternatives.push_back(std::make_shared<const SchemaNode::Alternatives>(
      SchemaNode::Alternatives{.choices = std::move(choices), .path = at.path, .within = within}));
}

}  // namespace

// Keywords that lead to other schemas for the same value.
Outcome SchemaReader::ReadCombinator(SchemaNode& node, const Keyword& at,
                                     const SchemaNode::Within& within) const {
  const Json* nullable_keyword = FindMember(at.schema, "nullable");
  const bool nullable = nullable_keyword != nullptr && *nullable_keyword == true;
  SchemaRefs refs;
  if (at.name.starts_with('$')) {
    auto target = Resolve(at.value, at.path);
    if (!target) return std::unexpected(target.error());
    refs.push_back(*std::move(target));
  } else {
    if (!at.value.is_array() || at.value.empty())
      return Invalid(at.path, at.name, "a non-empty list of schemas");
    const SchemaPath path = at.ValuePath();
    refs.reserve(at.value.size());
    for (size_t i = 0; i < at.value.size(); ++i) refs.push_back({&at.value[i], path.Item(i)});
  }
  const bool any = at.name == "anyOf" || at.name == "oneOf";
  if (nullable && (any || refs.size() == 1)) {
    refs.push_back({&NullSchema(), at.path});
  } else if (!any || refs.size() == 1) {
    for (const SchemaRef& ref : refs) {
      if (auto merged = Merge(node, ref, within); !merged) return merged;
    }
    return {};
  }
  AddAlternatives(node, std::move(refs), at, within);
  return {};
}

Outcome SchemaReader::ReadMember(SchemaNode& node, const Keyword& at,
                                 const SchemaNode::Within& within) const {
  if (IsLoosened(at.name)) {
    builder_.Loosen(at.name);
    return {};
  }
  const bool combines = at.name == "$ref" || at.name == "$dynamicRef" || at.name == "$recursiveRef" ||
                        at.name == "allOf" || at.name == "anyOf" || at.name == "oneOf";
  if (combines) return ReadCombinator(node, at, within);
  auto read = ReadKeyword(node, at);
  if (read || !loosens_) return read;
  builder_.Loosen(at.name);
  return {};
}

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
    auto read = ReadMember(node, {*ref.schema, value, ref.path, name}, within);
    if (!read) return read;
  }
  return {};
}

}  // namespace quire::runner::constraint
