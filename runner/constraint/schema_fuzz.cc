// libFuzzer: a JSON Schema, a zero byte, and choices. What the compiled schema lets the choices write is a
// JSON text that satisfies the schema, as far as the few keywords go that are checked here a second time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/base/ascii.h"
#include "api/base/utf8.h"
#include "api/json/read.h"
#include "runner/constraint/output_format.h"
#include "runner/constraint/testing/fuzz_walk.h"
#include "runner/work/work_budget.h"

namespace {

using namespace quire::runner::constraint;
using fuzzing::Require;
using quire::api::Json;

bool HasType(const Json& value, const std::string& written) {
  const std::string type = quire::api::AsciiLower(written);
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return value.is_number();
}

bool HasTypeOf(const Json& value, const Json& types) {
  if (types.is_string()) return HasType(value, types.get<std::string>());
  return std::ranges::any_of(types, [&value](const Json& type) {
    return type.is_string() && HasType(value, type.get<std::string>());
  });
}

// No value where the keyword is absent.
const Json* Find(const Json& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

void CheckArray(const Json& schema, const Json& value) {
  if (const Json* most = Find(schema, "maxItems"))
    Require(static_cast<double>(value.size()) <= most->get<double>());
  if (const Json* least = Find(schema, "minItems"))
    Require(static_cast<double>(value.size()) >= least->get<double>());
}

void Check(const Json& schema, const Json& value);

void CheckObject(const Json& schema, const Json& value) {
  if (const Json* required = Find(schema, "required")) {
    for (const Json& name : *required) Require(value.contains(name.get<std::string>()));
  }
  const Json* properties = Find(schema, "properties");
  if (properties == nullptr) return;
  for (const auto& [name, member] : value.items()) {
    if (const auto found = properties->find(name); found != properties->end()) Check(*found, member);
  }
}

// REQUIRES: the schema was compiled, so its keywords have values of the right kind.
void Check(const Json& schema, const Json& value) {
  if (!schema.is_object() || schema.contains("$ref") || schema.contains("nullable")) return;
  if (const Json* types = Find(schema, "type")) Require(HasTypeOf(value, *types));
  if (const Json* only = Find(schema, "const")) Require(value == *only);
  if (const Json* values = Find(schema, "enum")) {
    Require(std::ranges::any_of(*values, [&value](const Json& one) { return one == value; }));
  }
  if (const Json* schemas = Find(schema, "allOf")) {
    for (const Json& one : *schemas) Check(one, value);
  }
  if (value.is_number()) {
    if (const Json* least = Find(schema, "minimum")) Require(value >= *least);
    if (const Json* most = Find(schema, "maximum")) Require(value <= *most);
  }
  if (value.is_array()) CheckArray(schema, value);
  if (value.is_object()) CheckObject(schema, value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto [schema, choices] = fuzzing::SplitAt({reinterpret_cast<const char*>(data), size}, '\0');
  try {
    const quire::runner::WorkLimit limit(fuzzing::kUnitsMax);
    GrammarBuilder builder;
    const auto whole =
        AnswerOf({quire::api::OutputFormat::Kind::kSchema, std::string(schema), "format"}, {}, builder);
    if (!whole) {
      Require(whole.error().message.starts_with("format: "));
      return 0;
    }
    const auto grammar = CompileGrammar(*whole, builder);
    if (!grammar) return 0;
    const auto text = fuzzing::Walk(**grammar, fuzzing::Choices(choices));
    if (!text) return 0;
    Require(quire::api::IsValidUtf8(*text));
    const auto value = quire::api::ReadJson(*text);
    Require(value.has_value());
    Check(*quire::api::ReadJson(schema), *value);
  } catch (const quire::runner::WorkStopped&) {
  }
  return 0;
}
