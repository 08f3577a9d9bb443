#include "runner/prompt/turn_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace quire::runner {
namespace {

constexpr std::string_view kResultOpen = "<tool_response>\n", kResultClose = "\n</tool_response>";

// A function's name as a JSON string.
std::string QuotedJson(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsNine(std::string_view id) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return id.size() == 9 && std::ranges::all_of(id, plain);
}

// Equal ids stay equal, in every conversation.
std::string NineOf(std::string_view id) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  std::string nine;
  for (int i = 0; i < 9; ++i, hash /= kDigits.size()) nine += kDigits[hash % kDigits.size()];
  return nine;
}

// Calls that wait for a result, in order.
class OpenCalls {
 public:
  struct Call {
    std::string id, name, new_id;
  };

  void Add(Call call) { calls_.push_back(std::move(call)); }
  void Clear() { calls_.clear(); }

  // The call of this result: by its id, else by its function's name, else the first. Nothing where none
  // waits.
  bool Take(const api::Message& result, Call& taken) {
    auto found = calls_.end();
    if (!result.tool_call_id.empty()) {
      found = std::ranges::find(calls_, result.tool_call_id, &Call::id);
    } else {
      if (!result.tool_name.empty()) found = std::ranges::find(calls_, result.tool_name, &Call::name);
      if (found == calls_.end()) found = calls_.begin();
    }
    if (found == calls_.end()) return false;
    taken = std::move(*found);
    calls_.erase(found);
    return true;
  }

 private:
  std::vector<Call> calls_;
};

std::string NewId(const api::ToolCall& call, CallIds ids, size_t number) {
  if (ids == CallIds::kNamed) {
    return call.id.starts_with("functions.") ? call.id : fmt::format("functions.{}:{}", call.name, number);
  }
  if (call.id.empty()) return fmt::format("call{:05}", number + 1);
  return ids == CallIds::kNine && !IsNine(call.id) ? NineOf(call.id) : call.id;
}

// Calls one by one, each with its result behind it.
void OneByOne(std::vector<Turn>& turns, size_t at) {
  const auto first = turns.begin() + static_cast<ptrdiff_t>(at);
  const auto end =
      std::find_if(first + 1, turns.end(), [](const Turn& turn) { return turn.message.role != "tool"; });
  std::vector<Turn> results(std::make_move_iterator(first + 1), std::make_move_iterator(end));
  Turn whole = std::move(*first);
  std::vector<Turn> spread;
  for (api::ToolCall& call : whole.message.tool_calls) {
    Turn one = spread.empty() ? whole : Turn{{.role = whole.message.role, .content = {}}, {}};
    auto own = std::ranges::find_if(results, [&](const Turn& result) {
      return result.message.tool_call_id.empty() || result.message.tool_call_id == call.id;
    });
    one.message.tool_calls = {std::move(call)};
    spread.push_back(std::move(one));
    if (own == results.end()) continue;
    spread.push_back(std::move(*own));
    results.erase(own);
  }
  std::ranges::move(results, std::back_inserter(spread));
  const auto place = turns.erase(first, end);
  turns.insert(place, std::make_move_iterator(spread.begin()), std::make_move_iterator(spread.end()));
}

void CallsToText(Turn& turn, const WriteCalls& write_calls) {
  std::string& content = turn.message.content;
  const std::vector<PromptSegment> written = write_calls(turn.message.tool_calls);
  if (!content.empty() && !written.empty() && !written.front().text.starts_with('\n')) content += '\n';
  for (const PromptSegment& segment : written) {
    const size_t begin = content.size();
    content += segment.text;
    if (segment.from_template && !segment.text.empty()) turn.markers.push_back({begin, content.size()});
  }
  turn.message.tool_calls.clear();
}

void ResultToUser(Turn& turn) {
  const std::string content = std::move(turn.message.content);
  turn.message.content = fmt::format("{}{}{}", kResultOpen, content, kResultClose);
  turn.markers = {{0, kResultOpen.size()},
                  {turn.message.content.size() - kResultClose.size(), turn.message.content.size()}};
  for (api::Image& image : turn.message.images) image.at += kResultOpen.size();
  turn.message.role = "user";
  turn.message.tool_name.clear();
  turn.message.tool_call_id.clear();
}

// Whether what stands at `index` is concerned, where the last user message is number `last_user`.
bool Concerns(Scope scope, size_t index, size_t last_user) {
  return scope == Scope::kAll || (scope == Scope::kPast && index < last_user);
}

size_t LastUser(const std::vector<Turn>& turns) {
  for (size_t i = turns.size(); i > 0; --i) {
    if (turns[i - 1].message.role == "user") return i - 1;
  }
  return 0;
}

}  // namespace

void NameCalls(std::vector<Turn>& turns, CallIds ids) {
  OpenCalls open;
  size_t number = 0;
  for (Turn& turn : turns) {
    api::Message& message = turn.message;
    if (!message.tool_calls.empty()) open.Clear();
    for (api::ToolCall& call : message.tool_calls) {
      std::string id = NewId(call, ids, number++);
      open.Add({std::exchange(call.id, id), call.name, id});
    }
    OpenCalls::Call call;
    if (message.role != "tool") continue;
    if (open.Take(message, call)) {
      message.tool_call_id = std::move(call.new_id);
      if (message.tool_name.empty()) message.tool_name = std::move(call.name);
    } else {
      message.tool_call_id = NewId({message.tool_call_id, message.tool_name, {}}, ids, number);
    }
  }
}

void ResultsToCalls(std::vector<Turn>& turns) {
  const auto has_calls = [](const Turn& turn) { return !turn.message.tool_calls.empty(); };
  for (auto call = std::ranges::find_if(turns, has_calls); call != turns.end();) {
    const auto end = std::find_if(call + 1, turns.end(), has_calls);
    std::stable_partition(call + 1, end, [](const Turn& turn) { return turn.message.role == "tool"; });
    call = end;
  }
}

void OrphansAsUser(std::vector<Turn>& turns) {
  OpenCalls open;
  for (Turn& turn : turns) {
    const api::Message& message = turn.message;
    if (!message.tool_calls.empty()) open.Clear();
    for (const api::ToolCall& call : message.tool_calls) open.Add({call.id, call.name, {}});
    OpenCalls::Call call;
    if (message.role == "tool" && !open.Take(message, call)) ResultToUser(turn);
  }
}

void ArrangeCalls(std::vector<Turn>& turns, const TurnRules& rules, const WriteCalls& write_calls) {
  const size_t last_user = LastUser(turns);
  for (size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    if (turn.message.role == "tool" && Concerns(rules.results_as_user, i, last_user)) ResultToUser(turn);
    if (turn.message.tool_calls.empty()) continue;
    const bool mixed = rules.mixed_calls_as_text && !turn.message.content.empty();
    const bool open = rules.open_calls_as_text && i + 1 == turns.size();
    if (mixed || open || Concerns(rules.calls_as_text, i, last_user)) CallsToText(turn, write_calls);
  }
  for (size_t i = 0; rules.one_call && i < turns.size(); ++i) {
    if (turns[i].message.tool_calls.size() > 1) OneByOne(turns, i);
  }
  for (size_t i = 0; rules.text_before_calls && i < turns.size(); ++i) {
    Turn& turn = turns[i];
    const bool alone = turn.message.content.empty() && turn.message.images.empty();
    if (turn.message.tool_calls.empty() || alone) continue;
    Turn text = turn;
    text.message.tool_calls.clear();
    turn.message.content.clear();
    turn.message.images.clear();
    turn.message.thinking.clear();
    turn.markers.clear();
    turns.insert(turns.begin() + static_cast<ptrdiff_t>(i++), std::move(text));
  }
  if (!rules.skip_empty_assistants) return;
  std::erase_if(turns, [](const Turn& turn) {
    return turn.message.role == "assistant" && turn.message.content.empty() && turn.message.images.empty() &&
           turn.message.tool_calls.empty() && turn.message.thinking.empty();
  });
}

std::vector<PromptSegment> WriteGenericCalls(std::span<const api::ToolCall> calls) {
  std::vector<PromptSegment> written;
  for (const api::ToolCall& call : calls) {
    written.push_back({written.empty() ? "<tool_call>\n{\"name\": " : "\n<tool_call>\n{\"name\": ", true});
    written.push_back({QuotedJson(call.name), false});
    written.push_back({", \"arguments\": ", true});
    written.push_back({call.arguments_json.empty() ? "{}" : call.arguments_json, false});
    written.push_back({"}\n</tool_call>", true});
  }
  return written;
}

std::vector<PromptSegment> DescribeTools(std::span<const api::Tool> tools, const WriteCalls& write_calls) {
  std::vector<PromptSegment> text = {
      {"# Tools\n\nYou may call functions to help with the request. These are their definitions in JSON:\n\n",
       true}};
  for (const api::Tool& tool : tools) {
    text.push_back({tool.definition_json, false});
    text.push_back({"\n", true});
  }
  text.push_back(
      {"\nTo call a function, write the call in exactly this form, with its name and its arguments:\n\n",
       true});
  const api::ToolCall example{{}, "function_name", R"({"argument": "value"})"};
  for (PromptSegment& segment : write_calls(std::span(&example, 1)))
    text.push_back({std::move(segment.text), true});
  text.push_back(
      {"\n\nThe result of a call comes in the next message. Answer without a call where none is needed.",
       true});
  return text;
}

}  // namespace quire::runner
