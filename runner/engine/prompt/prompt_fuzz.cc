// libFuzzer: a byte that says which language and which conversation, then a model's chat template. The prompt
// is valid UTF-8, has all its text in segments of alternating origin, and is the same each time.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/utf8.h"
#include "api/json/testing/tools_of.h"
#include "runner/prompt/prompt_template.h"
#include "runner/work/work_budget.h"

namespace {

using namespace quire::runner;
using quire::api::Message;

// A tenth of a second even with sanitizers, if every loop counts its work.
constexpr uint64_t kUnitsMax = 200'000;

void Require(bool condition) {
  if (!condition) std::abort();
}

std::vector<Message> Conversation(uint8_t choice) {
  std::vector<Message> messages = {{.role = "system", .content = "s<|b|>"},
                                   {.role = "user", .content = "caf\xC3\xA9 {{ x }} <|im_end|>"}};
  if ((choice & 2U) != 0) {
    messages.push_back({.role = "assistant",
                        .content = "",
                        .tool_calls = {{"call00001", "f", R"({"a": [1, "b"], "c": {"d": null}})"}}});
    messages.push_back({.role = "tool", .content = "r", .tool_name = "f", .tool_call_id = "call00001"});
  }
  if ((choice & 4U) != 0) messages.push_back({.role = "assistant", .content = "go on"});
  return messages;
}

void Check(const std::vector<PromptSegment>& segments) {
  for (size_t i = 0; i < segments.size(); ++i) {
    Require(!segments[i].text.empty() && quire::api::IsValidUtf8(segments[i].text));
    Require(i == 0 || segments[i].from_template != segments[i - 1].from_template);
  }
}

std::string TextOf(const std::vector<PromptSegment>& segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<quire::api::Tool> tools = quire::api::testing::ToolsOf(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{}}}}}])");
  if (size == 0) return 0;
  const uint8_t choice = data[0];
  const std::string_view source(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const WorkLimit limit(kUnitsMax);
    const auto parsed = (choice & 1U) != 0
                            ? PromptTemplate::ParseGo(source)
                            : PromptTemplate::Parse(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    if (!parsed) return 0;
    static_cast<void>((*parsed)->ProbeTurns());
    ThinkingSwitch thinking;
    if ((choice & 16U) != 0) thinking = {.on = (choice & 32U) != 0, .effort = "low"};
    const auto render = [&] {
      return (*parsed)->Render(Conversation(choice),
                               (choice & 8U) != 0 ? tools : std::vector<quire::api::Tool>(), std::tm{},
                               thinking);
    };
    const auto first = render();
    if (!first) return 0;
    Check(*first);
    const auto second = render();
    Require(second && TextOf(*first) == TextOf(*second));
    if (const auto fim = (*parsed)->RenderFim("before", "after", {})) Check(*fim);
  } catch (const WorkStopped&) {
  }
  return 0;
}
