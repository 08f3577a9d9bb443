#include "runner/output/write_calls.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "runner/output/answer_markup.h"

namespace quire::runner::output {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// As a literal of Python's.
std::string Python(const ordered_json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_structured()) return Dump(value);
  std::string text(1, value.is_object() ? '{' : '[');
  for (const auto& [key, item] : value.items()) {
    if (text.size() > 1) text += ", ";
    if (value.is_object()) text += Dump(key) + ": ";
    text += Python(item);
  }
  return text + (value.is_object() ? '}' : ']');
}

class Writer {
 public:
  explicit Writer(const ToolCallTemplate& form) : form_(form) {}

  std::vector<CallText> Write(std::span<const api::ToolCall> calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i == 0) Markup(form_.open);
      if (i > 0 && !form_.between.empty()) Markup(form_.between);
      if (i > 0 && form_.between.empty()) {  // an answer has one call: this is another answer
        Markup(form_.close);
        Markup("\n");
        Markup(form_.open);
      }
      number_ = std::to_string(i);
      Call(calls[i]);
    }
    Markup(form_.close);
    return std::move(written_);
  }

 private:
  void Add(std::string text, bool markup) {
    if (text.empty()) return;
    if (!written_.empty() && written_.back().markup == markup) {
      written_.back().text += text;
    } else {
      written_.push_back({std::move(text), markup});
    }
  }
  void Data(std::string text) { Add(std::move(text), false); }
  void Markup(std::string_view text) {
    std::string markup(text);
    if (const size_t at = markup.find(kCallNumber); at != std::string::npos) {
      markup.replace(at, kCallNumber.size(), number_);
    }
    Add(std::move(markup), true);
  }

  void Call(const api::ToolCall& call) {
    const ordered_json arguments = call.arguments_json.empty()
                                       ? ordered_json::object()
                                       : ordered_json::parse(call.arguments_json, nullptr, false);
    if (form_.python && arguments.is_object()) return PythonCall(call.name, arguments);
    if (form_.tagged != nullptr && arguments.is_object()) return TaggedCall(call.name, arguments);
    Markup(form_.head);
    // As in a JSON string, without the quotation marks.
    const std::string quoted = Dump(call.name);
    Data(form_.json_name ? quoted.substr(1, quoted.size() - 2) : call.name);
    Markup(form_.middle);
    Data(call.arguments_json.empty() ? "{}" : call.arguments_json);
    Markup(form_.tail);
  }

  void PythonCall(const std::string& name, const ordered_json& arguments) {
    Data(name);
    Markup("(");
    bool first = true;
    for (const auto& [key, value] : arguments.items()) {
      if (!std::exchange(first, false)) Markup(", ");
      Data(key);
      Markup("=");
      Data(Python(value));
    }
    Markup(")");
  }

  void TaggedCall(const std::string& name, const ordered_json& arguments) {
    const TaggedArguments& tags = *form_.tagged;
    Markup(tags.head);
    Data(name);
    Markup(tags.middle);
    for (const auto& [key, value] : arguments.items()) {
      Markup(tags.key);
      Data(key);
      Markup(value.is_string() && !tags.text_value.empty() ? tags.text_value : tags.value);
      Data(value.is_string() ? value.get<std::string>() : Dump(value));
      Markup(tags.end);
    }
    Markup(tags.tail);
  }

  const ToolCallTemplate& form_;
  std::string number_;
  std::vector<CallText> written_;
};

}  // namespace

std::vector<CallText> WriteCalls(const Format& format, std::span<const api::ToolCall> calls) {
  return Writer(*MarkupOf(format).calls).Write(calls);
}

}  // namespace quire::runner::output
