// Calls whose arguments are written as Python, XML-like tags or Gemma's own literals.
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/json/read.h"
#include "runner/output/literal_reader.h"
#include "runner/output/text.h"
#include "runner/output/tool_call_syntax.h"

namespace quire::runner::output {
namespace {

using api::Json;

constexpr std::string_view kGemmaQuote = "<|\"|>";
constexpr std::string_view kFunctionGemmaQuote = "<escape>";

Reading Failed(const LiteralReader& reader) {
  return reader.ran_out() ? Reading::kIncomplete : Reading::kMalformed;
}

void Add(std::vector<api::ToolCall>& calls, std::string_view name, const Json& arguments) {
  calls.push_back({{}, std::string(name), api::DumpJson(arguments)});
}

// f(k="v", 2): arguments without a name take those of the tool's parameters, in order.
bool ReadPythonicCall(LiteralReader& reader, const Tools& tools, std::vector<api::ToolCall>& calls) {
  const auto name = reader.ConsumeName();
  if (name.empty()) return false;
  if (!reader.Consume("(")) return false;
  const Tool* tool = tools.Find(name);
  Json arguments = Json::object();
  MemberWriter members(arguments);
  size_t count = 0;
  for (reader.SkipSpace(); !reader.Consume(")"); reader.SkipSpace()) {
    if (count > 0 && !reader.Consume(",")) return false;
    reader.SkipSpace();
    if (reader.Consume(")")) break;
    LiteralReader keyword = reader;
    const auto key = keyword.ConsumeName();
    keyword.SkipSpace();
    std::string parameter;
    if (!key.empty() && keyword.Consume("=")) {
      reader = keyword;
      parameter = key;
    } else if (tool != nullptr && count < tool->parameters.size()) {
      parameter = tool->parameters[count].name;
    }
    auto value = reader.PythonValue();
    if (!value || parameter.empty()) return false;
    members.Set(std::move(parameter), *std::move(value));
    ++count;
  }
  Add(calls, name, arguments);
  return true;
}

// A value that stands between tags as it is: its type is the schema's where that says one.
Json ValueOfText(std::string_view text, TypeSet types) {
  if (types == kString) return std::string(text);
  const auto trimmed = Trim(text);
  std::optional<Json> value;
  if (auto json = api::ReadJson(trimmed)) {
    value = *std::move(json);
  } else if (trimmed == "True" || trimmed == "False") {
    value = trimmed == "True";
  } else if (trimmed == "None") {
    value = Json(nullptr);
  } else if ((types & (kObject | kArray)) != 0) {
    const std::string closed = std::string(trimmed) + " ";
    LiteralReader reader(closed);
    value = reader.PythonValue();
    reader.SkipSpace();
    if (!reader.at_end()) value.reset();
  }
  if (!value || value->is_string()) return std::string(text);
  const TypeSet type = value->is_number()    ? kNumber
                       : value->is_boolean() ? kBoolean
                       : value->is_null()    ? kNull
                       : value->is_object()  ? kObject
                                             : kArray;
  if (types == 0 || (types & type) != 0 || (types & kString) == 0) return *std::move(value);
  return std::string(text);
}

std::string_view WithoutLineBreaks(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// The text of a value up to its end tag, and past it. An end tag inside a string of a list or object is part
// of it.
std::optional<std::string_view> ConsumeValue(LiteralReader& reader, std::string_view end, TypeSet types) {
  const std::string_view value = TrimLeft(reader.rest());
  const bool json =
      types != 0 && (types & kString) == 0 && (value.starts_with('{') || value.starts_with('['));
  if (json && reader.MaySearch()) {
    ValueEnd found;
    const bool ended = found.Advance(value) == ValueEnd::State::kEnded;
    const std::string_view behind = TrimLeft(value.substr(found.size()));
    if (ended && behind.starts_with(end)) {
      reader.Skip(reader.rest().size() - behind.size() + end.size());
      return value.substr(0, found.size());
    }
    reader.RecordSearch(found.size());
  }
  return reader.ConsumeUntil(end);
}

struct CallTags {
  std::string_view begin, name_end, end;                      // of a call
  std::string_view parameter, parameter_name_end, value_end;  // of a parameter
  bool on_lines = false;                                      // values have lines of their own
  bool typed = false;                                         // string="true" or "false" behind a name
};
constexpr CallTags kFunctionTags = {"<function=",   ">", "</function>", "<parameter=", ">",
                                    "</parameter>", true};
constexpr CallTags kInvokeTags = {"<invoke name=\"",    "\">", "</invoke>",
                                  "<parameter name=\"", "\">", "</parameter>"};
constexpr CallTags kDsmlTags = {"<｜DSML｜invoke name=\"",    "\">", "</｜DSML｜invoke>",
                                "<｜DSML｜parameter name=\"", "\"",  "</｜DSML｜parameter>",
                                /*on_lines=*/false,           true};

// Whether a parameter is a text, or what its schema says.
std::optional<TypeSet> ReadTyped(LiteralReader& reader, TypeSet types) {
  const auto attributes = reader.ConsumeUntil(">");
  if (!attributes) return std::nullopt;
  const auto said = Trim(*attributes);
  if (said == "string=\"true\"") return kString;
  if (said == "string=\"false\"") return static_cast<TypeSet>(types & ~kString);
  return said.empty() ? std::optional(types) : std::nullopt;
}

// <function=f> <parameter=k> v </parameter> </function>
bool ReadFunctionTags(const CallTags& tags, LiteralReader& reader, const Tools& tools,
                      std::vector<api::ToolCall>& calls) {
  if (!reader.Consume(tags.begin)) return false;
  const auto taken = reader.ConsumeUntil(tags.name_end);
  if (!taken || Trim(*taken).empty()) return false;
  const auto name = Trim(*taken);
  const Tool* tool = tools.Find(name);
  Json arguments = Json::object();
  MemberWriter members(arguments);
  for (reader.SkipSpace(); !reader.Consume(tags.end); reader.SkipSpace()) {
    if (!reader.Consume(tags.parameter)) return false;
    const auto key = reader.ConsumeUntil(tags.parameter_name_end);
    if (!key) return false;
    const auto parameter = Trim(*key);
    TypeSet types = tool == nullptr ? TypeSet{0} : tool->TypesOf(parameter);
    if (tags.typed) {
      const auto typed = ReadTyped(reader, types);
      if (!typed) return false;
      types = *typed;
    }
    const auto text = ConsumeValue(reader, tags.value_end, types);
    if (!text) return false;
    members.Set(std::string(parameter), ValueOfText(tags.on_lines ? WithoutLineBreaks(*text) : *text, types));
  }
  Add(calls, name, arguments);
  return true;
}

// f <arg_key>k</arg_key> <arg_value>v</arg_value>
bool ReadArgumentTags(LiteralReader& reader, const Tools& tools, std::vector<api::ToolCall>& calls) {
  const auto name = reader.ConsumeName();
  reader.SkipSpace();
  const Tool* tool = tools.Find(name);
  // Without arguments it is a word like any other.
  if (name.empty() || (reader.at_end() && tool == nullptr)) return false;
  Json arguments = Json::object();
  MemberWriter members(arguments);
  for (; !reader.at_end(); reader.SkipSpace()) {
    if (!reader.Consume("<arg_key>")) return false;
    const auto key = reader.ConsumeUntil("</arg_key>");
    if (!key) return false;
    reader.SkipSpace();
    if (!reader.Consume("<arg_value>")) return false;
    const auto parameter = Trim(*key);
    const TypeSet types = tool == nullptr ? TypeSet{0} : tool->TypesOf(parameter);
    const auto text = ConsumeValue(reader, "</arg_value>", types);
    if (!text) return false;
    members.Set(std::string(parameter), ValueOfText(*text, types));
  }
  Add(calls, name, arguments);
  return true;
}

// One call or several.
Reading ReadCallTags(const CallTags& tags, std::string_view text, const Tools& tools,
                     std::vector<api::ToolCall>& calls) {
  LiteralReader reader(text);
  std::vector<api::ToolCall> read;
  do {
    if (!ReadFunctionTags(tags, reader, tools, read)) return Failed(reader);
    reader.SkipSpace();
  } while (!reader.at_end());
  for (auto& call : read) calls.push_back(std::move(call));
  return Reading::kCalls;
}

class GemmaReader {
 public:
  GemmaReader(LiteralReader& reader, std::string_view quote) : reader_(reader), quote_(quote) {}

  // The text after "{".
  std::optional<Json> Object(int depth) {
    Json object = Json::object();
    MemberWriter members(object);
    for (reader_.SkipSpace(); !reader_.Consume("}"); reader_.SkipSpace()) {
      if (!object.empty() && !reader_.Consume(",")) return std::nullopt;
      reader_.SkipSpace();
      const auto key = Key();
      if (!key) return std::nullopt;
      auto value = Value(depth + 1);
      if (!value) return std::nullopt;
      members.Set(*key, *std::move(value));
    }
    return object;
  }

 private:
  std::optional<std::string> Key() {
    if (reader_.Consume(quote_)) {
      const auto key = reader_.ConsumeUntil(quote_);
      reader_.SkipSpace();
      if (!key || !reader_.Consume(":")) return std::nullopt;
      return std::string(*key);
    }
    const auto key = reader_.ConsumeUntil(":");
    if (!key || Trim(*key).empty()) return std::nullopt;
    return std::string(Trim(*key));
  }

  std::optional<Json> Value(int depth) {
    reader_.SkipSpace();
    if (depth > kLiteralDepthMax) return std::nullopt;
    if (reader_.Consume(quote_)) {
      const auto text = reader_.ConsumeUntil(quote_);
      if (!text) return std::nullopt;
      return Json(std::string(*text));
    }
    if (reader_.Consume("{")) return Object(depth);
    if (reader_.Consume("[")) return List(depth);
    if (reader_.rest().starts_with('"')) {
      auto text = reader_.QuotedString();
      if (!text) return std::nullopt;
      return Json(*std::move(text));
    }
    return UnquotedValue();
  }

  std::optional<Json> List(int depth) {
    Json list = Json::array();
    for (reader_.SkipSpace(); !reader_.Consume("]"); reader_.SkipSpace()) {
      if (!list.empty() && !reader_.Consume(",")) return std::nullopt;
      auto value = Value(depth + 1);
      if (!value) return std::nullopt;
      list.push_back(*std::move(value));
    }
    return list;
  }

  std::optional<Json> UnquotedValue() {
    const size_t size = reader_.rest().find_first_of(",]}");
    if (size == std::string_view::npos) {
      reader_.MarkTruncated();
      return std::nullopt;
    }
    const auto text = Trim(reader_.rest().substr(0, size));
    reader_.Skip(size);
    if (text.empty()) return std::nullopt;
    if (auto json = api::ReadJson(text)) return *std::move(json);
    return Json(std::string(text));
  }

  LiteralReader& reader_;
  const std::string_view quote_;  // around texts
};

Reading ReadGemmaCall(std::string_view quote, std::string_view text, std::vector<api::ToolCall>& calls) {
  LiteralReader reader(text);
  reader.SkipSpace();
  if (!reader.Consume("call:")) return Failed(reader);
  const auto taken = reader.ConsumeUntil("{");
  if (!taken) return Reading::kIncomplete;
  const auto name = Trim(*taken);
  if (name.empty()) return Reading::kMalformed;
  if (const auto json = api::ReadJson("{" + std::string(reader.rest())); json && json->is_object()) {
    Add(calls, name, *json);
    return Reading::kCalls;
  }
  const auto arguments = GemmaReader(reader, quote).Object(0);
  if (!arguments) return Failed(reader);
  reader.SkipSpace();
  if (!reader.at_end()) return Reading::kMalformed;
  Add(calls, name, *arguments);
  return Reading::kCalls;
}

}  // namespace

Reading ReadPythonicCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls) {
  text = TrimLeft(text);
  const auto inner = text.starts_with('[') ? TrimLeft(text.substr(1)) : text;
  if (inner.starts_with('{')) return ReadJsonCalls(text, tools, calls);
  LiteralReader reader(text);
  const bool in_list = reader.Consume("[");
  std::vector<api::ToolCall> read;
  for (reader.SkipSpace(); !(in_list ? reader.Consume("]") : reader.at_end() && !read.empty());
       reader.SkipSpace()) {
    if (!read.empty() && !reader.Consume(",") && in_list) return Failed(reader);
    reader.SkipSpace();
    if (!ReadPythonicCall(reader, tools, read)) {
      return reader.at_end() || reader.ran_out() ? Reading::kIncomplete : Reading::kMalformed;
    }
  }
  reader.SkipSpace();
  if (read.empty() || !reader.at_end()) return Reading::kMalformed;
  for (auto& call : read) calls.push_back(std::move(call));
  return Reading::kCalls;
}

Reading ReadTaggedCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls) {
  text = Trim(text);
  if (text.starts_with('{') || text.starts_with('[')) return ReadJsonCalls(text, tools, calls);
  if (text.starts_with('<')) return ReadCallTags(kFunctionTags, text, tools, calls);
  LiteralReader reader(text);
  return ReadArgumentTags(reader, tools, calls) ? Reading::kCalls : Failed(reader);
}

Reading ReadInvokeCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls) {
  text = Trim(text);
  if (text.starts_with('{') || text.starts_with('[')) return ReadJsonCalls(text, tools, calls);
  return ReadCallTags(kInvokeTags, text, tools, calls);
}

Reading ReadDsmlCalls(std::string_view text, const Tools& tools, std::vector<api::ToolCall>& calls) {
  text = Trim(text);
  if (text.starts_with('{') || text.starts_with('[')) return ReadJsonCalls(text, tools, calls);
  return ReadCallTags(kDsmlTags, text, tools, calls);
}

Reading ReadGemmaCalls(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  return ReadGemmaCall(kGemmaQuote, text, calls);
}

Reading ReadFunctionGemmaCalls(std::string_view text, const Tools&, std::vector<api::ToolCall>& calls) {
  return ReadGemmaCall(kFunctionGemmaQuote, text, calls);
}

}  // namespace quire::runner::output
