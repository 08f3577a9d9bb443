#include "runner/prompt/go_prompt.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runner/prompt/message_values.h"

namespace quire::runner {
namespace {

using jinja::Trust;
using jinja::Value;

// Neighbors that say the same role are one message, as Ollama hands them over; not those with calls, and not
// the results of calls.
std::vector<Turn> Collate(std::span<const Turn> turns) {
  std::vector<Turn> collated;
  for (const Turn& turn : turns) {
    const api::Message& message = turn.message;
    const bool joins = !collated.empty() && collated.back().message.role == message.role &&
                       message.role != "tool" && collated.back().message.tool_calls.empty() &&
                       message.tool_calls.empty() && message.thinking.empty();
    if (joins) {
      AppendContent(collated.back(), "\n\n", turn);
    } else {
      collated.push_back(turn);
    }
  }
  return collated;
}

// Go's structs have all their fields: what is left out of a message is empty there, not missing.
Value WithAllFields(const Value& message) {
  std::vector<Value::Entry> entries = message.as_dict().entries();
  const auto add = [&](const char* name, const Value& value) {
    if (message.as_dict().Find(std::string_view(name)) == nullptr)
      entries.emplace_back(Value::String(name), value);
  };
  const Value* tool_name = message.as_dict().Find(std::string_view("name"));
  const Value empty = Value::String("");
  add("thinking", empty);
  add("tool_calls", Value::MakeList({}));
  add("tool_name", tool_name != nullptr ? *tool_name : empty);
  add("tool_call_id", empty);
  add("images", Value::MakeList({}));
  return Value(std::make_shared<const jinja::Dict>(std::move(entries), jinja::Charge()));
}

Value Data(std::vector<std::pair<std::string, Value>> entries, const GoThinking& thinking) {
  entries.emplace_back("Think", Value(thinking.on));
  entries.emplace_back("ThinkLevel", Value::String(thinking.level));
  entries.emplace_back("IsThinkSet", Value(thinking.set));
  return Value::MakeDict(std::move(entries));
}

Value ConversationData(std::span<const Turn> turns, const Value& list, Value tools,
                       const GoThinking& thinking) {
  std::string system;
  for (const Turn& turn : turns) {
    if (turn.message.role != "system") continue;
    if (!system.empty()) system += "\n\n";
    system += turn.message.content;
  }
  std::vector<Value> items;
  items.reserve(list.as_list().items.size());
  for (const Value& message : list.as_list().items) items.push_back(WithAllFields(message));
  return Data({{"System", Value::String(std::move(system), Trust::kRequest)},
               {"Messages", Value::MakeList(std::move(items))},
               {"Tools", std::move(tools)},
               {"Response", Value::String("")}},
              thinking);
}

// The rounds of a template that knows one exchange: a system text, a question, an answer, in this order; what
// comes out of order begins the next round.
class Rounds {
 public:
  explicit Rounds(const GoThinking& thinking) : thinking_(thinking) {}
  void Add(const api::Message& message, const Value& content) {
    if (message.role == "system") {
      if (prompt_ || response_) End();
      system_ = content;
    } else if (message.role == "assistant") {
      response_ = content;
    } else {
      if (response_ || prompt_) End();
      prompt_ = content;
    }
  }
  std::vector<Value> Take() && {
    End();
    return std::move(rounds_);
  }

 private:
  void End() {
    const auto text = [](std::optional<Value>& value) {
      return std::exchange(value, std::nullopt).value_or(Value::String(""));
    };
    rounds_.push_back(Data(
        {{"System", text(system_)}, {"Prompt", text(prompt_)}, {"Response", text(response_)}}, thinking_));
  }

  const GoThinking& thinking_;
  std::optional<Value> system_, prompt_, response_;
  std::vector<Value> rounds_;
};

}  // namespace

api::Result<jinja::TrackedText> RenderGoPrompt(const gotemplate::Template& parsed,
                                               std::span<const Turn> conversation,
                                               std::span<const api::Tool> tools, std::string_view suffix,
                                               const std::tm& now, const GoThinking& thinking) {
  const std::vector<Turn> turns = Collate(conversation);
  const auto list = MessagesValue(turns, {}, suffix);
  if (!list) return std::unexpected(list.error());
  if (parsed.Uses("Messages")) {
    auto tool_list = ToolsValue(tools, Value::MakeList({}));
    if (!tool_list) return std::unexpected(std::move(tool_list).error());
    const std::array data = {ConversationData(turns, *list, *std::move(tool_list), thinking)};
    return parsed.Render(data, false, now);
  }
  Rounds rounds(thinking);
  for (size_t i = 0; i < turns.size(); ++i) {
    const Value* content = list->as_list().items[i].as_dict().Find(std::string_view("content"));
    rounds.Add(turns[i].message, *content);
  }
  return parsed.Render(std::move(rounds).Take(), true, now);
}

api::Result<jinja::TrackedText> RenderGoFim(const gotemplate::Template& parsed, std::string_view prefix,
                                            std::string_view suffix, const std::tm& now) {
  const auto text = [](std::string_view from) { return Value::String(std::string(from), Trust::kRequest); };
  const std::array data = {
      Data({{"Prompt", text(prefix)}, {"Suffix", text(suffix)}, {"Response", Value::String("")}}, {})};
  return parsed.Render(data, true, now);
}

}  // namespace quire::runner
