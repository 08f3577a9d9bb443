#include "api/json/format_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/json/read.h"
#include "api/json/text.h"

namespace quire::api {
namespace {

using Kind = OutputFormat::Kind;

// A schema, as the object that it is or as its JSON text.
void GetSchema(Fields& fields, std::string_view name, std::optional<OutputFormat>& out) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return;
  if (value->is_object() || value->is_boolean()) {
    out = OutputFormat{Kind::kSchema, DumpJson(*value), fields.PathOf(name)};
  } else if (value->is_string()) {
    out = OutputFormat{Kind::kSchema, value->get<std::string>(), fields.PathOf(name)};
  } else {
    fields.Reject(name, "must be a JSON schema");
  }
}

void GetRegex(Fields& fields, std::string_view name, std::optional<OutputFormat>& out) {
  std::string pattern;
  if (fields.Get(name, pattern)) out = OutputFormat{Kind::kRegex, std::move(pattern), fields.PathOf(name)};
}

void GetChoice(Fields& fields, std::string_view name, std::optional<OutputFormat>& out) {
  const Json* list = fields.FindArray(name);
  if (list == nullptr) return;
  for (const Json& text : *list) {
    if (!text.is_string()) return fields.Reject(name, "must be an array of strings");
  }
  if (list->empty()) return fields.Reject(name, "must not be empty");
  out = OutputFormat{Kind::kChoice, DumpJson(*list), fields.PathOf(name)};
}

// An empty one is as none.
void GetGrammar(Fields& fields, std::string_view name, std::optional<OutputFormat>& out) {
  std::string grammar;
  if (!fields.Get(name, grammar) || grammar.empty()) return;
  out = OutputFormat{Kind::kGrammar, std::move(grammar), fields.PathOf(name)};
}

// The runner refuses a larger one, too; here it is refused before it is copied into each choice.
std::optional<OutputFormat> Checked(std::optional<OutputFormat> format, FirstError& error) {
  if (!format || error || format->text.size() <= kFormatBytesMax) return format;
  error = Error{ErrorCode::kUnsupported,
                fmt::format("field \"{}\" must have at most {} bytes", format->field, kFormatBytesMax),
                format->field};
  return std::nullopt;
}

// Whether an object is a schema itself, not one of the forms in which clients wrap it.
bool IsSchema(const Json& value) {
  constexpr auto kKeywords =
      std::to_array<std::string_view>({"properties", "$ref", "$defs", "anyOf", "oneOf", "allOf", "enum",
                                       "const", "items", "additionalProperties"});
  constexpr auto kTypes =
      std::to_array<std::string_view>({"object", "array", "string", "number", "integer", "boolean", "null"});
  if (!value.is_object()) return value.is_boolean();
  const auto type = value.find("type");
  const bool typed =
      type != value.end() && (type->is_array() || std::ranges::any_of(kTypes, [&](std::string_view name) {
                                return type->is_string() &&
                                       EqualIgnoringCase(type->get_ref<const std::string&>(), name);
                              }));
  return typed || std::ranges::any_of(kKeywords, [&](std::string_view name) { return value.contains(name); });
}

// A schema, or an object that has it as "schema" beside its name.
void GetWrappedSchema(Fields& fields, std::string_view name, std::optional<OutputFormat>& out) {
  const Json* value = fields.Find(name);
  if (value == nullptr) return;
  if (!value->is_object() || IsSchema(*value)) return GetSchema(fields, name, out);
  Fields holder(*value, fields.PathOf(name), fields.error());
  GetSchema(holder, "schema", out);
  if (!out) holder.Reject("schema", "is required and must be a JSON schema");
}

// {type: "text" | "json_object" | "json_schema" | "json" | "regex" | "grammar"} with what the type needs
// under one of the names that servers and clients have for it, or a schema itself.
std::optional<OutputFormat> GetFormatObject(Fields& holder, std::string_view name) {
  const Json* value = holder.Find(name);
  std::optional<OutputFormat> out;
  if (value == nullptr || IsText(*value, "text")) return out;
  if (IsText(*value, "json_object") || IsText(*value, "json"))
    return OutputFormat{Kind::kJsonObject, {}, holder.PathOf(name)};
  if (value->is_object() && IsSchema(*value)) {
    GetSchema(holder, name, out);
    return out;
  }
  if (holder.FindObject(name) == nullptr) return out;
  Fields format(*value, holder.PathOf(name), holder.error());
  std::string type;
  format.Get("type", type);
  if (type == "json_object" || type == "json_schema" || type == "json") {
    for (const std::string_view schema : {"schema", "json_schema", "value"}) {
      if (!out) GetWrappedSchema(format, schema, out);
    }
    if (!out && type == "json_schema") format.Reject("schema", "is required and must be a JSON schema");
    if (!out) out = OutputFormat{Kind::kJsonObject, {}, format.PathOf("type")};
  } else if (type == "regex") {
    for (const std::string_view pattern : {"value", "pattern", "regex"}) {
      if (!out) GetRegex(format, pattern, out);
    }
    if (!out) format.Reject("value", "is required and must be a regular expression");
  } else if (type == "grammar") {
    GetGrammar(format, "grammar", out);
    if (!out) format.Reject("grammar", "is required and must be a grammar in GBNF");
  } else if (type != "text") {
    format.Reject("type", R"(must be "text", "json_object" or "json_schema")");
  }
  return out;
}

}  // namespace

std::optional<OutputFormat> GetTypedFormatAs(Fields& holder, std::string_view name) {
  return Checked(GetFormatObject(holder, name), holder.error());
}

std::optional<OutputFormat> GetTypedFormat(Fields& holder) { return GetTypedFormatAs(holder, "format"); }

std::optional<OutputFormat> GetFormat(Fields& body) {
  constexpr std::string_view kName = "format";
  const Json* value = body.Find(kName);
  if (value == nullptr || IsText(*value, "")) return std::nullopt;
  if (value->is_object()) {
    const bool wrapped = !IsSchema(*value) && value->contains("type");
    if (wrapped) return Checked(GetFormatObject(body, kName), body.error());
    return Checked(OutputFormat{Kind::kSchema, DumpJson(*value), body.PathOf(kName)}, body.error());
  }
  if (IsText(*value, "json")) return OutputFormat{Kind::kJsonObject, {}, body.PathOf(kName)};
  body.Reject(kName, R"(must be "json" or a JSON schema)");
  return std::nullopt;
}

std::optional<OutputFormat> GetResponseFormat(Fields& body) {
  std::optional<OutputFormat> format = GetFormatObject(body, "response_format");
  const auto also = [&](std::string_view name, std::optional<OutputFormat> other) {
    if (!other) return;
    // The schema of a JSON object may stand in a field of its own.
    const bool more = format && format->kind == Kind::kJsonObject && other->kind == Kind::kSchema;
    if (format && !more)
      body.Reject(name, "cannot be combined with another field that sets the output format");
    format = std::move(other);
  };
  const auto read = [&](Fields& fields, std::string_view name, auto get) {
    std::optional<OutputFormat> other;
    get(fields, name, other);
    also(name, std::move(other));
  };
  also("format", GetFormat(body));  // as Ollama has it
  read(body, "grammar", GetGrammar);
  read(body, "json_schema", GetWrappedSchema);
  read(body, "guided_json", GetSchema);
  read(body, "guided_regex", GetRegex);
  read(body, "regex", GetRegex);  // as SGLang has it
  read(body, "guided_choice", GetChoice);
  if (const Json* value = body.FindObject("structured_outputs")) {
    Fields fields(*value, body.PathOf("structured_outputs"), body.error());
    read(fields, "json", GetSchema);
    read(fields, "regex", GetRegex);
    read(fields, "choice", GetChoice);
    read(fields, "grammar", GetGrammar);
  }
  return Checked(std::move(format), body.error());
}

}  // namespace quire::api
