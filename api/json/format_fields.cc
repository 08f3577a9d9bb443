#include "api/json/format_fields.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

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

std::optional<OutputFormat> GetOpenAi(Fields& body) {
  const Json* value = body.FindObject("response_format");
  if (value == nullptr) return std::nullopt;
  Fields format(*value, body.PathOf("response_format"), body.error());
  std::string type;
  format.Get("type", type);
  if (type == "text") return std::nullopt;
  std::optional<OutputFormat> out;
  if (type == "json_object") {
    // Some clients give its schema here.
    GetSchema(format, "schema", out);
    if (!out) out = OutputFormat{Kind::kJsonObject, {}, format.PathOf("type")};
  } else if (type == "json_schema") {
    const Json* holder = format.FindObject("json_schema");
    if (holder == nullptr) {
      format.Reject("json_schema", "is required and must be of type object");
      return std::nullopt;
    }
    Fields fields(*holder, format.PathOf("json_schema"), body.error());
    GetSchema(fields, "schema", out);
    if (!out) fields.Reject("schema", "is required and must be a JSON schema");
  } else {
    format.Reject("type", R"(must be "text", "json_object" or "json_schema")");
  }
  return out;
}

}  // namespace

std::optional<OutputFormat> GetTypedFormat(Fields& holder) {
  const Json* value = holder.FindObject("format");
  if (value == nullptr) return std::nullopt;
  Fields format(*value, holder.PathOf("format"), holder.error());
  std::string type;
  format.Get("type", type);
  std::optional<OutputFormat> out;
  if (type == "json_object") {
    out = OutputFormat{Kind::kJsonObject, {}, format.PathOf("type")};
  } else if (type == "json_schema") {
    GetSchema(format, "schema", out);
    if (!out) format.Reject("schema", "is required and must be a JSON schema");
  } else if (type != "text") {
    format.Reject("type", R"(must be "text", "json_object" or "json_schema")");
  }
  return Checked(std::move(out), holder.error());
}

std::optional<OutputFormat> GetFormat(Fields& body) {
  constexpr std::string_view kName = "format";
  const Json* value = body.Find(kName);
  std::optional<OutputFormat> format;
  if (value == nullptr) return format;
  if (value->is_object()) {
    format = OutputFormat{Kind::kSchema, DumpJson(*value), body.PathOf(kName)};
  } else if (IsText(*value, "json")) {
    format = OutputFormat{Kind::kJson, {}, body.PathOf(kName)};
  } else if (!value->is_string() || !value->get_ref<const std::string&>().empty()) {
    body.Reject(kName, R"(must be "json" or a JSON schema)");
  }
  return Checked(std::move(format), body.error());
}

std::optional<OutputFormat> GetResponseFormat(Fields& body) {
  std::optional<OutputFormat> format = GetOpenAi(body);
  const auto also = [&](std::string_view name, std::optional<OutputFormat> other) {
    if (!other) return;
    if (format) body.Reject(name, "cannot be combined with another field that sets the output format");
    format = std::move(other);
  };
  const auto read = [&](Fields& fields, std::string_view name, auto get) {
    std::optional<OutputFormat> other;
    get(fields, name, other);
    also(name, std::move(other));
  };
  also("format", GetFormat(body));  // as Ollama has it
  read(body, "grammar", GetGrammar);
  read(body, "json_schema", GetSchema);
  read(body, "guided_json", GetSchema);
  read(body, "guided_regex", GetRegex);
  read(body, "guided_choice", GetChoice);
  if (const Json* value = body.FindObject("structured_outputs")) {
    Fields fields(*value, body.PathOf("structured_outputs"), body.error());
    read(fields, "json", GetSchema);
    read(fields, "regex", GetRegex);
    read(fields, "choice", GetChoice);
  }
  return Checked(std::move(format), body.error());
}

}  // namespace quire::api
