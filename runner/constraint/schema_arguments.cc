// Arguments between tags, where a string stands as it is: its text must not be one that a reader takes for
// another value.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/constraint/schema_compiler.h"

namespace quire::runner::constraint {
namespace {

using api::Json;

enum class TextKind : uint8_t {
  kJson,     // no string
  kText,     // any text is a value that the schema allows
  kChoice,   // some strings
  kUnclear,  // what a text means is not known, or whether it is allowed
};

// Whether an object has these keys only, beside annotations.
bool HasOnly(const Json& schema, std::initializer_list<std::string_view> keys) {
  constexpr std::string_view kAnnotations[] = {"title",      "description", "default",   "examples",
                                               "deprecated", "readOnly",    "writeOnly", "$comment"};
  return std::ranges::all_of(schema.get_ref<const Json::object_t&>(), [&](const auto& member) {
    return std::ranges::find(keys, member.first) != keys.end() ||
           std::ranges::find(kAnnotations, member.first) != std::end(kAnnotations);
  });
}

// Reads `type`, a text or a list of texts.
TextKind KindOfType(const Json& type, bool alone) {
  const auto is = [&](std::string_view name) {
    return type.is_array() ? std::ranges::any_of(type, [&](const Json& each) { return each == name; })
                           : type == name;
  };
  if (!is("string")) return TextKind::kJson;
  return !alone || (is("integer") && !is("number")) ? TextKind::kUnclear : TextKind::kText;
}

TextKind KindOfValues(const Json& values, bool alone) {
  if (!values.is_array() || values.empty()) return TextKind::kUnclear;
  const auto is_string = [](const Json& value) { return value.is_string(); };
  if (std::ranges::none_of(values, is_string)) return TextKind::kJson;
  return alone && std::ranges::all_of(values, is_string) ? TextKind::kChoice : TextKind::kUnclear;
}

TextKind KindOf(const Json& schema, bool alternatives = true) {
  if (!schema.is_object()) return schema == true ? TextKind::kText : TextKind::kUnclear;
  const auto type = schema.find("type"), values = schema.find("enum"), one = schema.find("const");
  const auto any_of = schema.find("anyOf");
  const bool strings = type == schema.end() || *type == "string";
  if (one != schema.end()) {
    return KindOfValues(Json::array({*one}), strings && HasOnly(schema, {"type", "const"}));
  }
  if (values != schema.end()) return KindOfValues(*values, strings && HasOnly(schema, {"type", "enum"}));
  if (type != schema.end()) return KindOfType(*type, HasOnly(schema, {"type"}));
  if (HasOnly(schema, {})) return TextKind::kText;
  if (!alternatives || any_of == schema.end() || !any_of->is_array() || !HasOnly(schema, {"anyOf"})) {
    return TextKind::kUnclear;
  }
  // One of them decides what a text means: no number that only an integer may be, no list of constants.
  bool text = false, integer = false;
  for (const Json& choice : *any_of) {
    const TextKind kind = KindOf(choice, false);
    if (kind != TextKind::kText && kind != TextKind::kJson) return TextKind::kUnclear;
    text = text || kind == TextKind::kText;
    integer = integer || (kind == TextKind::kJson &&
                          (!HasOnly(choice, {"type"}) || choice.value("type", Json()) == "integer"));
  }
  if (!text) return TextKind::kJson;
  return integer ? TextKind::kUnclear : TextKind::kText;
}

bool IsTagName(std::string_view name) {
  return !name.empty() && name.find_first_of("<>\"\n\t ") == std::string_view::npos;
}

// What `enum` or `const` has, as texts; without those that hold what ends a tag.
ExprRef Texts(const Json& schema) {
  const auto values = schema.find("enum");
  const Json list = values != schema.end() ? *values : Json::array({schema["const"]});
  std::vector<ExprRef> texts;
  texts.reserve(list.size());
  for (const Json& value : list) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.find("</") == std::string::npos) texts.push_back(Literal(text));
  }
  return texts.empty() ? Never() : Choice(std::move(texts));
}

}  // namespace

api::Result<ExprRef> SchemaCompiler::RunAsTaggedArguments(const ArgumentTags& tags) {
  return NamedMembers(Nothing(), [&](std::string_view name, const SchemaRefs& refs) -> api::Result<ExprRef> {
    const TextKind kind = refs.size() == 1 ? KindOf(*refs[0].schema) : TextKind::kUnclear;
    if (kind == TextKind::kUnclear || !IsTagName(name)) {
      return api::Fail(api::ErrorCode::kUnsupported, "a property that tags cannot express");
    }
    ExprRef value = tags.text;
    if (kind != TextKind::kText) {
      const ExprRef plain = kind == TextKind::kChoice ? Texts(*refs[0].schema) : Value(refs);
      if (IsNever(plain)) return plain;
      value = Sequence({plain, tags.after_value});
    }
    const bool json = kind != TextKind::kText && kind != TextKind::kChoice;
    return Sequence({tags.before_name, Literal(name), json ? tags.before_value : tags.before_text, value});
  });
}

}  // namespace quire::runner::constraint
