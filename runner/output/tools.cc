#include "runner/output/tools.h"

#include <nlohmann/json.hpp>

#include "api/json/read.h"

namespace quire::runner::output {
namespace {

using api::Json;

TypeSet TypeNamed(const Json& name) {
  if (name == "string") return kString;
  if (name == "number" || name == "integer") return kNumber;
  if (name == "boolean") return kBoolean;
  if (name == "null") return kNull;
  if (name == "object") return kObject;
  return name == "array" ? kArray : 0;
}

TypeSet TypeOf(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_number()) return kNumber;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  return value.is_object() ? kObject : kArray;
}

const Json* Member(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// The type in a parameter's schema. Alternatives are searched one level deep.
TypeSet TypesOfSchema(const Json& schema, bool alternatives = true) {
  TypeSet types = 0;
  const auto add = [&types](TypeSet more) { types = static_cast<TypeSet>(types | more); };
  if (const Json* type = Member(schema, "type")) {
    if (!type->is_array()) return TypeNamed(*type);
    for (const Json& one : *type) add(TypeNamed(one));
    return types;
  }
  if (const Json* constant = Member(schema, "const")) return TypeOf(*constant);
  if (const Json* values = Member(schema, "enum"); values != nullptr && values->is_array()) {
    for (const Json& value : *values) add(TypeOf(value));
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    const Json* list = Member(schema, name);
    if (!alternatives || list == nullptr || !list->is_array()) continue;
    for (const Json& one : *list) add(TypesOfSchema(one, false));
  }
  return types;
}

}  // namespace

TypeSet Tool::TypesOf(std::string_view parameter) const {
  const auto found = types_by_name.find(parameter);
  return found == types_by_name.end() ? TypeSet{0} : found->second;
}

Tools::Tools(std::span<const api::Tool> tools) {
  for (const api::Tool& given : tools) {
    Tool& tool = tools_.emplace_back();
    tool.name = given.name;
    by_name_.emplace(tool.name, tools_.size() - 1);
    if (given.parameters_json.empty()) continue;
    const auto parameters = api::ReadJson(given.parameters_json);
    const Json* properties = parameters ? Member(*parameters, "properties") : nullptr;
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->get_ref<const Json::object_t&>()) {
      tool.parameters.push_back({key, TypesOfSchema(schema)});
      tool.types_by_name.emplace(key, tool.parameters.back().types);
    }
  }
}

const Tool* Tools::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tools_[found->second];
}

}  // namespace quire::runner::output
