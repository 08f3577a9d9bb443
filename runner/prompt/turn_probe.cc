#include "runner/prompt/turn_probe.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "runner/work/work_budget.h"

namespace quire::runner {
namespace {

using api::Message;
using api::Tool;
using api::ToolCall;

constexpr uint64_t kProbeUnitsMax = 50'000'000;  // half a second; published templates take a hundredth

constexpr uint8_t kAllParts =
    TurnRules::kUserPart | TurnRules::kSystemPart | TurnRules::kAssistantPart | TurnRules::kToolPart;

// One change of the rules, and what it means. The note of a change that is a part of another one is empty.
struct RuleChange {
  void (*apply)(TurnRules&);
  const char* note;
};

constexpr RuleChange kFunctions = {[](TurnRules& r) { r.functions_text = true; },
                                   "chat template: the variable `functions` gets the tools as JSON"};
constexpr RuleChange kParts = {[](TurnRules& r) { r.content_parts = kAllParts; },
                               "chat template: content is a list of parts"};
constexpr RuleChange kUserParts = {[](TurnRules& r) { r.content_parts = TurnRules::kUserPart; },
                                   "chat template: the content of user messages is a list of parts"};
constexpr RuleChange kSystemParts = {
    [](TurnRules& r) { r.content_parts ^= TurnRules::kSystemPart; },
    "chat template: the content of system messages has another form than that of others"};
constexpr RuleChange kAssistantParts = {
    [](TurnRules& r) { r.content_parts ^= TurnRules::kAssistantPart; },
    "chat template: the content of assistant messages has another form than that of others"};
constexpr RuleChange kToolParts = {
    [](TurnRules& r) { r.content_parts ^= TurnRules::kToolPart; },
    "chat template: the content of tool results has another form than that of others"};
constexpr RuleChange kSystemAsUser = {
    [](TurnRules& r) { r.system_as_user = true; },
    "chat template: no system role; a system text begins the next user turn"};
constexpr RuleChange kSystemAtQuestion = {
    [](TurnRules& r) { r.system_at_question = true; },
    "chat template: shows the system text beside a last user turn only; else it begins the first one"};
constexpr RuleChange kDeveloper = {[](TurnRules& r) { r.developer_as_system = true; },
                                   "chat template: developer messages are system messages"};
constexpr RuleChange kJoinSystems = {[](TurnRules& r) { r.join_systems = true; },
                                     "chat template: one system message; leading ones are joined"};
constexpr RuleChange kLaterSystem = {
    [](TurnRules& r) { r.later_system_as_user = true; },
    "chat template: no later system messages; their text begins the next user turn"};
constexpr RuleChange kJoinUsers = {[](TurnRules& r) { r.join_users = true; },
                                   "chat template: adjacent user turns are joined"};
constexpr RuleChange kJoinAssistants = {[](TurnRules& r) { r.join_assistants = true; },
                                        "chat template: adjacent assistant turns are joined"};
constexpr RuleChange kUserFirst = {
    [](TurnRules& r) { r.user_first = true; },
    "chat template: an empty user turn goes before an assistant turn that comes first"};
constexpr RuleChange kSpace = {[](TurnRules& r) { r.filler = " "; }, ""};
constexpr RuleChange kUserSomewhere = {[](TurnRules& r) { r.user_somewhere = true; },
                                       "chat template: a system message alone is a user turn"};
constexpr RuleChange kSkipEmpty = {[](TurnRules& r) { r.skip_empty_assistants = true; },
                                   "chat template: empty assistant turns are left out"};
constexpr RuleChange kToolsAsText = {[](TurnRules& r) { r.tools_as_text = true; },
                                     "chat template: shows no tools; the system text describes them"};
constexpr RuleChange kCompleteTools = {
    [](TurnRules& r) { r.complete_tools = true; },
    "chat template: absent descriptions and parameters of tools are empty ones"};
constexpr RuleChange kCompleteProperties = {
    [](TurnRules& r) { r.complete_properties = true; },
    "chat template: absent descriptions in the parameters of tools are empty ones"};
constexpr RuleChange kSystemInCalls = {
    [](TurnRules& r) { r.system_in_calls_as_user = true; },
    "chat template: no system messages behind tool calls; their text begins the next user turn"};
constexpr RuleChange kMixedCalls = {[](TurnRules& r) { r.mixed_calls_as_text = true; },
                                    "chat template: tool calls beside text stand in the text"};
constexpr RuleChange kSingleTypes = {[](TurnRules& r) { r.single_types = true; },
                                     "chat template: of a list of types in a tool's schema the first counts"};
constexpr RuleChange kNullContent = {[](TurnRules& r) { r.null_content = true; }, ""};
constexpr RuleChange kNamedIds = {[](TurnRules& r) { r.ids = CallIds::kNamed; },
                                  "chat template: ids of tool calls are functions.NAME:NUMBER"};
constexpr RuleChange kNineIds = {[](TurnRules& r) { r.ids = CallIds::kNine; },
                                 "chat template: ids of tool calls are nine letters and digits"};
constexpr RuleChange kAlwaysIds = {[](TurnRules& r) { r.ids = CallIds::kAlways; },
                                   "chat template: tool calls without an id get one"};
constexpr RuleChange kPastCalls = {
    [](TurnRules& r) { r.calls_as_text = Scope::kPast; },
    "chat template: drops calls before the last user message; they stand in the text"};
constexpr RuleChange kPastResults = {
    [](TurnRules& r) { r.results_as_user = Scope::kPast; },
    "chat template: drops results before the last user message; they are user turns"};
constexpr RuleChange kCalls = {[](TurnRules& r) { r.calls_as_text = Scope::kAll; },
                               "chat template: shows no tool calls; they stand in the assistant's text"};
constexpr RuleChange kResults = {[](TurnRules& r) { r.results_as_user = Scope::kAll; },
                                 "chat template: shows no tool results; they are user turns"};
constexpr RuleChange kTextWithoutTools = {
    [](TurnRules& r) { r.text_without_tools = true; },
    "chat template: shows calls beside tools only; without they stand in the text"};
constexpr RuleChange kResultsAtCalls = {
    [](TurnRules& r) { r.results_at_calls = true; },
    "chat template: drops results with a text before them; they stand right behind their calls"};
constexpr RuleChange kOpenCalls = {
    [](TurnRules& r) { r.open_calls_as_text = true; },
    "chat template: drops calls at the end, which have no results yet; they stand in the text"};
constexpr RuleChange kOrphans = {[](TurnRules& r) { r.orphans_as_user = true; },
                                 "chat template: a tool result without a call is a user turn"};
constexpr RuleChange kTextBefore = {[](TurnRules& r) { r.text_before_calls = true; },
                                    "chat template: text beside tool calls is a turn of its own"};
constexpr RuleChange kOneCall = {[](TurnRules& r) { r.one_call = true; },
                                 "chat template: one call a turn; parallel ones follow one another"};
constexpr RuleChange kAnswerResults = {
    [](TurnRules& r) { r.answer_results = true; },
    "chat template: an empty answer stands between tool results and a user turn"};
constexpr RuleChange kUserToResult = {
    [](TurnRules& r) { r.join_user_to_result = true; },
    "chat template: a user turn behind tool results stands in the last of them"};

using Changes = std::vector<RuleChange>;

Message System(const char* text) { return {.role = "system", .content = text}; }
Message User(const char* text) { return {.role = "user", .content = text}; }
Message Answer(const char* text, std::vector<ToolCall> calls = {}) {
  return {.role = "assistant", .content = text, .tool_calls = std::move(calls)};
}
Message ResultOf(const char* id, const char* text) {
  return {.role = "tool", .content = text, .tool_name = "nameQ", .tool_call_id = id};
}
ToolCall Call(const char* id, const char* arguments = R"({"argQ": "valQ"})") {
  return {id, "nameQ", arguments};
}

constexpr const char* kId = "call00001";
constexpr const char* kLongId = "call_4fPq0sZ7bLx2VtWnRk5hYdJc";

// A function with or without what clients leave out.
std::vector<Tool> ToolOf(const std::string& members) {
  return {{.name = "toolQ",
           .definition_json = R"({"type": "function", "function": {"name": "toolQ")" + members + "}}"}};
}

constexpr const char* kDescription = R"(, "description": "textQ")";
std::string Parameters(const char* property) {
  return std::string(R"(, "parameters": {"type": "object", "properties": {"argQ": )") + property +
         R"(}, "required": ["argQ"]})";
}
std::vector<Tool> WholeTool() {
  return ToolOf(kDescription + Parameters(R"({"type": "string", "description": "partQ"})"));
}

class Prober {
 public:
  explicit Prober(const RenderProbe& render) : render_(render) {}

  struct Shape {
    const char* name;
    std::vector<Message> messages;
    std::vector<const char*> shown;
    std::vector<Tool> tools = {};
  };

  bool Serves(const Shape& shape, const TurnRules& rules) const {
    const auto text = render_(shape.messages, shape.tools, rules);
    return text && std::ranges::all_of(
                       shape.shown, [&](const char* part) { return text->find(part) != std::string::npos; });
  }

  // The first of `attempts` under which the shape is served, and those before it as well, unless it is
  // already.
  void Try(Shape shape, std::initializer_list<Changes> attempts) {
    if (!Serves(shape, probe_.rules) && !Change(shape, attempts)) {
      probe_.unserved.emplace_back(shape.name);
      return;
    }
    served_.push_back(std::move(shape));
  }

  void ProbeTexts();
  void ProbeTools();
  void ProbeCalls();
  void ProbeOrder();
  void ProbeNullContent();

  TurnProbe probe_;

 private:
  bool Change(const Shape& shape, std::initializer_list<Changes> attempts) {
    for (const Changes& changes : attempts) {
      TurnRules rules = probe_.rules;
      for (const RuleChange& change : changes) change.apply(rules);
      if (rules == probe_.rules || !Serves(shape, rules)) continue;
      if (!std::ranges::all_of(served_, [&](const Shape& earlier) { return Serves(earlier, rules); }))
        continue;
      probe_.rules = rules;
      for (const RuleChange& change : changes) {
        if (*change.note != '\0') probe_.notes.emplace_back(change.note);
      }
      return true;
    }
    return false;
  }

  const RenderProbe& render_;
  std::vector<Shape> served_;
};

void Prober::ProbeTexts() {
  Try({"a user message", {User("askQ")}, {"askQ"}}, {{kFunctions}, {kParts}, {kUserParts}});
  Try({"a system message", {System("ruleQ"), User("askQ")}, {"ruleQ", "askQ"}},
      {{kSystemParts}, {kSystemAsUser}});
  Try({"a developer message", {{.role = "developer", .content = "ruleQ"}, User("askQ")}, {"ruleQ", "askQ"}},
      {{kDeveloper}});
  Try({"an answer", {User("askQ"), Answer("textQ"), User("moreQ")}, {"askQ", "textQ", "moreQ"}},
      {{kAssistantParts}});
  Try({"two user turns", {User("askQ"), User("moreQ")}, {"askQ", "moreQ"}}, {{kJoinUsers}});
  Try({"two answers",
       {User("askQ"), Answer("oneQ"), Answer("twoQ"), User("moreQ")},
       {"oneQ", "twoQ", "moreQ"}},
      {{kJoinAssistants}});
  Try({"two system messages", {System("ruleQ"), System("tooQ"), User("askQ")}, {"ruleQ", "tooQ", "askQ"}},
      {{kJoinSystems}});
  Try({"a later system message",
       {User("askQ"), Answer("textQ"), System("ruleQ"), User("moreQ")},
       {"askQ", "textQ", "ruleQ", "moreQ"}},
      {{kLaterSystem}});
  Try({"a later system message beside a first one",
       {System("oldQ"), User("askQ"), Answer("textQ"), System("ruleQ"), User("moreQ")},
       {"oldQ", "askQ", "textQ", "ruleQ", "moreQ"}},
      {{kLaterSystem}});
  Try({"a system message at the end", {User("askQ"), System("ruleQ")}, {"askQ", "ruleQ"}},
      {{kLaterSystem}, {kLaterSystem, kJoinUsers}});
  Try({"an assistant message first", {Answer("textQ"), User("askQ")}, {"textQ", "askQ"}},
      {{kUserFirst}, {kUserFirst, kSpace}});
  Try({"an assistant message behind the system message",
       {System("ruleQ"), Answer("textQ"), User("askQ")},
       {"ruleQ", "textQ", "askQ"}},
      {{kUserFirst}, {kUserFirst, kSpace}});
  Try({"a system message alone", {System("ruleQ")}, {"ruleQ"}}, {{kUserSomewhere}});
  Try({"an empty answer", {User("askQ"), Answer(""), User("moreQ")}, {"askQ", "moreQ"}},
      {{kSkipEmpty}, {kSkipEmpty, kJoinUsers}});
}

void Prober::ProbeTools() {
  const std::vector<Message> ask = {User("askQ")};
  Try({"tools", ask, {"askQ", "toolQ", "textQ", "argQ", "partQ"}, WholeTool()},
      {{kFunctions}, {kToolsAsText}});
  if (probe_.rules.tools_as_text) return;
  for (const std::string& incomplete :
       {Parameters(R"({"type": "string", "description": "partQ"})"), std::string(kDescription), std::string(),
        std::string(R"(, "description": null)")}) {
    Try({"an incomplete tool", ask, {"toolQ"}, ToolOf(incomplete)}, {{kCompleteTools}});
  }
  for (const char* property : {R"({"type": "string"})", "{}", R"({"type": "string", "description": null})",
                               R"({"type": "object", "properties": {"inQ": {"type": "string"}}})"}) {
    Try({"a property without a description",
         ask,
         {"toolQ", "argQ"},
         ToolOf(kDescription + Parameters(property))},
        {{kCompleteProperties}});
  }
  Try({"a tool with a list of types",
       ask,
       {"toolQ", "argQ"},
       ToolOf(kDescription + Parameters(R"({"type": ["string", "null"], "description": "partQ"})"))},
      {{kSingleTypes}, {kSingleTypes, kCompleteProperties}});
}

void Prober::ProbeCalls() {
  const std::vector<Tool> tools = WholeTool();
  const auto shape = [&](const char* name, std::vector<Message> messages, std::vector<const char*> shown) {
    return Shape{name, std::move(messages), std::move(shown), tools};
  };
  const Changes past = {kPastCalls, kPastResults};
  const Changes plain = {kCalls, kResults};
  Try(shape("a tool call", {User("askQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ")},
            {"askQ", "valQ", "nameQ", "foundQ"}),
      {{kToolParts}, {kNullContent}, {kNamedIds}, {kCalls}, {kResults}, plain});
  Try(shape("a system message before a tool call",
            {System("ruleQ"), User("askQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ")},
            {"ruleQ", "askQ", "valQ", "foundQ"}),
      {{kSystemAtQuestion}, {kSystemAsUser}});
  Try(shape("an earlier tool call",
            {User("askQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ"), Answer("textQ"), User("moreQ")},
            {"valQ", "foundQ", "textQ", "moreQ"}),
      {{kPastCalls}, {kPastResults}, past, {kCalls}, {kResults}, plain});
  Try(shape("text beside a call", {User("askQ"), Answer("besideQ", {Call(kId)}), ResultOf(kId, "foundQ")},
            {"besideQ", "valQ", "foundQ"}),
      {{kTextBefore}, {kMixedCalls}, {kCalls}, plain});
  Try(shape("text beside an earlier call",
            {User("askQ"), Answer("besideQ", {Call(kId)}), ResultOf(kId, "foundQ"), Answer("textQ"),
             User("moreQ")},
            {"besideQ", "valQ", "foundQ", "textQ", "moreQ"}),
      {{kTextBefore}, {kMixedCalls}, past, {kCalls}, plain});
  const std::vector<ToolCall> two = {Call(kId, R"({"argQ": "oneQ"})"),
                                     Call("call00002", R"({"argQ": "twoQ"})")};
  Try(shape("parallel calls",
            {User("askQ"), Answer("", two), ResultOf(kId, "firstQ"), ResultOf("call00002", "secondQ")},
            {"oneQ", "twoQ", "firstQ", "secondQ"}),
      {{kOneCall}, {kCalls}, plain});
  Try(shape("ids of other clients", {User("askQ"), Answer("", {Call(kLongId)}), ResultOf(kLongId, "foundQ")},
            {"nameQ", "valQ", "foundQ"}),
      {{kNineIds}, {kNamedIds}, {kCalls}, plain});
  Try(shape("calls without ids",
            {User("askQ"), Answer("", {Call("")}), Message{.role = "tool", .content = "foundQ"}},
            {"nameQ", "valQ", "foundQ"}),
      {{kAlwaysIds}, {kNineIds}, plain});
  Try(shape("a user message behind results",
            {User("askQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ"), User("moreQ")},
            {"valQ", "foundQ", "moreQ"}),
      {{kAnswerResults}, {kAnswerResults, kSpace}, past, {kUserToResult}, plain});
  Try({"calls without tools now",
       {User("askQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ"), User("moreQ")},
       {"valQ", "foundQ", "moreQ"}},
      {{kTextWithoutTools}, past, plain});
  Try(shape("a call without a result", {User("askQ"), Answer("", {Call(kId)})}, {"askQ", "nameQ", "valQ"}),
      {{kOpenCalls}});
  Try(shape("text beside a call without a result", {User("askQ"), Answer("besideQ", {Call(kId)})},
            {"besideQ", "valQ"}),
      {{kOpenCalls}});
  Try({"a result without a call", {User("askQ"), ResultOf(kId, "foundQ")}, {"askQ", "foundQ"}},
      {{kAlwaysIds}, {kOrphans}, {kOrphans, kJoinUsers}});
}

// Orders that changes made above may have put out of reach.
void Prober::ProbeOrder() {
  const std::vector<Tool> tools = WholeTool();
  const Changes plain = {kCalls, kResults};
  Try({"a system message between a call and its result",
       {User("askQ"), Answer("", {Call(kId)}), System("ruleQ"), ResultOf(kId, "foundQ")},
       {"valQ", "ruleQ", "foundQ"},
       tools},
      {{kSystemInCalls}, {kLaterSystem}, plain});
  Try({"a system message behind results",
       {User("askQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ"), System("ruleQ")},
       {"valQ", "ruleQ", "foundQ"},
       tools},
      {{kSystemInCalls}, {kLaterSystem}, plain});
  Try({"a user message before the result of a call",
       {User("askQ"), Answer("", {Call(kId)}), User("moreQ"), ResultOf(kId, "foundQ")},
       {"valQ", "moreQ", "foundQ"},
       tools},
      {{kResultsAtCalls}});
  Try({"an answer before the result of a call",
       {User("askQ"), Answer("", {Call(kId)}), Answer("textQ"), ResultOf(kId, "foundQ")},
       {"valQ", "textQ", "foundQ"},
       tools},
      {{kResultsAtCalls}});
  Try({"a text and a call apart",
       {User("askQ"), Answer("textQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ"), Answer("endQ"),
        User("moreQ")},
       {"textQ", "valQ", "foundQ", "endQ", "moreQ"},
       tools},
      {{kJoinAssistants}, {kPastCalls, kPastResults}, plain});
}

// Whether the template asks if a content is none.
bool AsksForNone(std::string_view source) {
  for (const char* test : {"content is none", "content'] is none", "content\"] is none",
                           "content is not none", "content'] is not none", "content\"] is not none"}) {
    if (source.find(test) != std::string_view::npos) return true;
  }
  return false;
}

// A template that asks may write an empty text where there is none.
void Prober::ProbeNullContent() {
  TurnRules rules = probe_.rules;
  rules.null_content = true;
  const std::vector<Message> messages = {User("askQ"), Answer("", {Call(kId)}), ResultOf(kId, "foundQ")};
  const auto text = render_(messages, WholeTool(), rules);
  const auto shown = [&](const char* part) { return text->find(part) != std::string::npos; };
  if (text && shown("valQ") && shown("foundQ") && !shown("None")) probe_.rules = rules;
}

}  // namespace

TurnRules PlainestRules(const TurnRules& rules) {
  TurnRules plain = rules;
  plain.developer_as_system = true;
  plain.join_systems = plain.later_system_as_user = plain.join_users = plain.join_assistants = true;
  plain.skip_empty_assistants = plain.user_first = plain.user_somewhere = plain.orphans_as_user = true;
  plain.calls_as_text = plain.results_as_user = Scope::kAll;
  plain.answer_results = plain.join_user_to_result = plain.one_call = plain.text_before_calls = false;
  plain.tools_as_text = true;
  return plain;
}

TurnProbe ProbeTurnRules(std::string_view source, const RenderProbe& render) {
  Prober prober(render);
  try {
    const WorkLimit limit(kProbeUnitsMax);
    prober.ProbeTexts();
    prober.ProbeTools();
    prober.ProbeCalls();
    prober.ProbeOrder();
    if (AsksForNone(source)) prober.ProbeNullContent();
  } catch (const WorkStopped&) {
    prober.probe_.unserved.emplace_back("templates that take this long");
  }
  return std::move(prober.probe_);
}

}  // namespace quire::runner
