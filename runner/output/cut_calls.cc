#include "runner/output/cut_calls.h"

#include <algorithm>
#include <optional>

#include "runner/output/text.h"

namespace quire::runner::output {
namespace {

// Where a text of brackets, strings and commas can be closed.
class ClosingPlaces {
 public:
  ClosingPlaces(std::string_view text, bool python) : text_(text), python_(python) {
    for (at_ = 0; at_ < text_.size(); ++at_) ConsumeByte(text_[at_]);
  }

  // Behind the last complete argument, or complete call; npos: nothing has begun.
  std::string Closed() const { return Close(arguments_); }
  // Behind the last complete call.
  std::string ClosedBeforeCall() const { return Close(call_); }
  bool has_brackets() const { return arguments_.has_value(); }

 private:
  struct Place {
    size_t at = 0;
    std::vector<char> open;
  };

  std::string Close(const std::optional<Place>& place) const {
    if (!place) return {};
    std::string closed(text_.substr(0, place->at));
    for (size_t i = place->open.size(); i-- > 0;) {
      closed += place->open[i] == '{' ? '}' : place->open[i] == '[' ? ']' : ')';
    }
    return closed;
  }

  // Brackets around a call's arguments, these included.
  size_t ArgumentsDepth() const {
    const size_t list = !open_.empty() && open_[0] == '[' ? 1 : 0;
    return python_ || named_ ? list + 1 : list + 2;
  }

  void MayClose(size_t at) {
    if (open_.size() > ArgumentsDepth()) return;
    arguments_ = Place{at, open_};
    if (open_.empty() || (open_.size() == 1 && open_[0] == '[')) call_ = arguments_;
  }

  void ConsumeByte(char c) {
    if (quote_ != 0) return ConsumeInString(c);
    if (open_.empty() && !IsSpace(c) && c != '{' && !(c == '[' && !named_) && !(python_ && c == '(')) {
      named_ = c != ',' && c != ';';
      return;
    }
    if (open_.empty() && c == '[' && named_) return;  // a marker
    if (c == '"' || (python_ && c == '\'')) {
      quote_ = c;
    } else if (c == '{' || c == '[' || (python_ && c == '(')) {
      open_.push_back(c);
      is_value_ = false;
      MayClose(at_ + 1);
    } else if (!open_.empty() && (c == '}' || c == ']' || (python_ && c == ')'))) {
      open_.pop_back();
      MayClose(at_ + 1);
      if (open_.empty()) named_ = false;
    } else if (c == ',') {
      if (is_value_) MayClose(at_);
      is_value_ = false;
    } else if (c == ':' || (python_ && c == '=')) {
      is_value_ = true;
    }
  }

  void ConsumeInString(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = 0;
      if (is_value_) MayClose(at_ + 1);
    }
  }

  const std::string_view text_;
  const bool python_;
  size_t at_ = 0;
  std::vector<char> open_;
  char quote_ = 0;
  bool escaped_ = false;
  bool is_value_ = false;  // since the last comma or bracket a value has begun
  bool named_ = false;     // the name stands before the arguments
  std::optional<Place> arguments_, call_;
};

// Behind the last complete argument, or the name.
std::string CloseTags(const TaggedArguments& tags, std::string_view text) {
  const auto behind_last = [&](std::string_view tag) {
    const size_t at = tag.empty() ? std::string_view::npos : text.rfind(tag);
    return at == std::string_view::npos ? 0 : at + tag.size();
  };
  const std::string_view middle = tags.head.empty() ? tags.middle : Trim(tags.middle);
  const size_t head = tags.head.empty() ? 0 : behind_last(tags.head);
  const size_t named = text.find(middle, head);
  const size_t name = named == std::string_view::npos ? 0 : named + middle.size();
  const size_t call = behind_last(Trim(tags.tail));
  const size_t until = std::max({call, behind_last(Trim(tags.end)), name});
  if (until == 0) return {};
  std::string closed(text.substr(0, until));
  if (until != call) closed += tags.tail;
  return closed;
}

bool AreTools(const std::vector<api::ToolCall>& calls, const Tools& tools) {
  return !calls.empty() &&
         std::ranges::all_of(calls, [&](const auto& call) { return tools.Find(call.name) != nullptr; });
}

}  // namespace

std::string CloseObject(std::string_view text) {
  const std::string named = "f" + std::string(text);
  const std::string closed = ClosingPlaces(named, /*python=*/false).Closed();
  return closed.empty() ? "{}" : closed.substr(1);
}

std::vector<api::ToolCall> ReadCutCalls(const ToolCallSyntax& syntax, std::string_view text,
                                        const Tools& tools, bool is_first) {
  text = TrimLeft(text);
  if (text.starts_with('`')) text.remove_prefix(std::min(text.find_first_of("{["), text.size()));  // a fence
  std::vector<std::string> closed;
  const bool json = TrimLeft(text.substr(text.starts_with('[') ? 1 : 0)).starts_with('{');
  const TaggedArguments* tags = syntax.call_template.tagged;
  if (tags != nullptr && !json) {
    closed = {CloseTags(*tags, text)};
  } else {
    const ClosingPlaces places(text, syntax.call_template.python && !json);
    closed = {places.Closed(), places.ClosedBeforeCall()};
    // A name, and perhaps what separates it from the arguments.
    if (!places.has_brackets())
      closed = {std::string(text) + "{}", std::string(text.substr(0, text.find('['))) + "{}"};
  }
  for (const std::string& one : closed) {
    std::vector<api::ToolCall> calls;
    if (syntax.read(one, tools, calls) == Reading::kCalls && AreTools(calls, tools)) return calls;
  }
  const Tool* only = tools.Only();
  if (only == nullptr || !is_first) return {};
  return {{{}, only->name, "{}"}};
}

}  // namespace quire::runner::output
