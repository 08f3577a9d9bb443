// /v1/responses: what its bodies mean, and golden transcripts of its replies.
#include "api/openai/responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire::api::openai {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string ResponseWith(const std::string& fields) { return R"({"model":"M",)" + fields + "}"; }

std::vector<std::string> MessagesOf(const std::string& fields) {
  const auto parsed = ParseResponses(ResponseWith(fields));
  EXPECT_TRUE(parsed) << fields << parsed.error().message;
  if (!parsed) return {};
  const Request request = ToRequest(*parsed, {});
  std::vector<std::string> parts;
  for (const Message& message : std::get<ChatPrompt>(request.prompt).messages) {
    std::string one = message.role + ":" + message.content;
    for (const ToolCall& call : message.tool_calls)
      one += "[" + call.id + " " + call.name + call.arguments_json + "]";
    if (!message.tool_call_id.empty()) one += "[" + message.tool_call_id + " " + message.tool_name + "]";
    parts.push_back(one);
  }
  return parts;
}

TEST(ResponsesParse, InputInEveryForm) {
  EXPECT_THAT(MessagesOf(R"("input":"hi")"), ElementsAre("user:hi"));
  EXPECT_THAT(MessagesOf(R"("input":"hi","instructions":"Be brief.")"),
              ElementsAre("system:Be brief.", "user:hi"));
  EXPECT_THAT(
      MessagesOf(
          R"("input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":)"
          R"([{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},{"type":"reasoning","summary":[]},)"
          R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"c","annotations":[]}]},)"
          R"({"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\": 1}"},)"
          R"({"type":"function_call_output","call_id":"c1","output":"42"},)"
          R"({"type":"function_call","call_id":"c2","name":"g"}])"),
      ElementsAre("system:d", "user:ab", R"(assistant:c[c1 f{"x":1}])", "tool:42[c1 f]",
                  "assistant:[c2 g{}]"));
}

TEST(ResponsesParse, FieldsReachTheRequest) {
  const auto parsed = ParseResponses(ResponseWith(
      R"("input":"hi","stream":true,"max_output_tokens":5,"temperature":0.5,"top_p":0.25,"seed":3,"store":true,)"
      R"("metadata":{"a":"b"},"text":{"format":{"type":"text"}},"tools":[],"tool_choice":"auto","include":[],)"
      R"("reasoning":{"effort":"none"},"previous_response_id":null,"background":false,"keep_alive":"1s")"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->stream);
  const Request request = ToRequest(*parsed, {});
  EXPECT_EQ(request.params.num_predict, 5);
  EXPECT_EQ(request.params.temperature, 0.5F);
  EXPECT_EQ(request.params.top_p, 0.25F);
  EXPECT_EQ(request.params.seed, 3);
  EXPECT_EQ(request.overflow, Overflow::kRefuse);
  EXPECT_FALSE(request.shift);
}

TEST(ResponsesParse, ToolsAndFormatReachTheRequest) {
  const auto parsed = ParseResponses(ResponseWith(
      R"("input":"hi","text":{"format":{"type":"json_schema","name":"n","schema":{"type":"null"},"strict":true}},)"
      R"("tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}],)"
      R"("tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false)"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Request request = ToRequest(*parsed, {});
  EXPECT_EQ(request.format->kind, OutputFormat::Kind::kSchema);
  EXPECT_EQ(request.format->text, R"({"type":"null"})");
  EXPECT_EQ(request.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(request.forced_tool, "f");
  EXPECT_TRUE(request.single_tool_call);
  EXPECT_EQ(std::get<ChatPrompt>(request.prompt).tools.at(0).definition_json,
            R"({"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},)"
            R"("strict":true}})");
}

TEST(ResponsesParse, ItemsOfAgentsBecomeTurns) {
  EXPECT_THAT(
      MessagesOf(
          R"("instructions":"i","input":[{"role":"developer","content":"d"},{"role":"user","content":"u"},)"
          R"({"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":null},)"
          R"({"type":"web_search_call","id":"w","status":"completed","action":{}},)"
          R"({"type":"function_call","call_id":"c1","namespace":"n","name":"f","arguments":"{}"},)"
          R"({"type":"custom_tool_call","call_id":"c2","name":"patch","input":"*** \"x\""},)"
          R"({"type":"local_shell_call","call_id":"c3","status":"completed","action":{"type":"exec","command":["ls"],)"
          R"("working_directory":"/tmp","env":{}}},{"type":"function_call_output","call_id":"c1","output":"1"},)"
          R"({"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},)"
          R"({"type":"local_shell_call_output","id":"c3","output":"3"}])"),
      ElementsAre(
          "system:i\n\nd", "user:u",
          R"(assistant:[c1 n.f{}][c2 patch{"input":"*** \"x\""}][c3 local_shell{"command":["ls"],"workdir":"/tmp"}])",
          "tool:1[c1 n.f]", "tool:2[c2 patch]", "tool:3[c3 local_shell]"));
}

TEST(ResponsesParse, ReasoningBelongsToTheTurnThatFollows) {
  const auto parsed = ParseResponses(ResponseWith(
      R"("input":[{"role":"user","content":"u"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text",)"
      R"("text":"a"}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"b"}]},)"
      R"({"role":"assistant","content":"A"},{"type":"reasoning","summary":[{"type":"summary_text","text":"c"}]},)"
      R"({"type":"function_call","call_id":"x","name":"f"},{"type":"reasoning","summary":[{"type":"summary_text",)"
      R"("text":"lost"}]},{"role":"user","content":"u"}])"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->messages.size(), 3U);
  EXPECT_EQ(parsed->messages[1].thinking, "a\n\nb\n\nc");
  EXPECT_EQ(parsed->messages[1].content, "A");
  EXPECT_EQ(parsed->messages[1].tool_calls.size(), 1U);
  EXPECT_EQ(parsed->messages[2].thinking, "");
}

constexpr const char* kAgentTools =
    R"([{"type":"function","name":"f"},{"type":"namespace","name":"n","description":"d","tools":[{"type":"function",)"
    R"("name":"g","strict":false,"parameters":{"type":"object"}}]},{"type":"web_search","external_web_access":true},)"
    R"({"type":"web_search_preview_2025_03_11"},{"type":"custom","name":"patch","description":"p","format":)"
    R"({"type":"grammar","syntax":"lark","definition":"start: A"}},{"type":"local_shell"}])";

TEST(ResponsesParse, ToolsOfAgents) {
  const auto parsed = ParseResponses(ResponseWith(std::string(R"("input":"hi","tools":)") + kAgentTools));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(parsed->unknown_options,
              ElementsAre("tools.web_search", "tools.web_search_preview_2025_03_11"));
  const Request request = ToRequest(*parsed, {});
  std::vector<std::string> names, fields;
  for (const Tool& tool : std::get<ChatPrompt>(request.prompt).tools) {
    names.push_back(tool.name);
    fields.push_back(tool.parameters_field);
  }
  EXPECT_THAT(names, ElementsAre("f", "n.g", "patch", "local_shell"));
  EXPECT_THAT(fields, ElementsAre("tools[0].parameters", "tools[1].tools[0].parameters", "", ""));
  EXPECT_THAT(std::get<ChatPrompt>(request.prompt).tools[2].definition_json, HasSubstr("(lark):\\nstart: A"));
  EXPECT_EQ(json::parse(std::get<ChatPrompt>(request.prompt).tools[2].parameters_json)["properties"]["input"],
            json::parse(R"({"type":"string","x-grammar":{"syntax":"lark","definition":"start: A"}})"));
  EXPECT_EQ(json::parse(parsed->tools_json), json::parse(kAgentTools));
  for (const auto& [choice, name] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"function","namespace":"n","name":"g"})", "n.g"},
           {R"({"type":"custom","name":"patch"})", "patch"},
           {R"({"type":"local_shell"})", "local_shell"}}) {
    const auto forced = ParseResponses(
        ResponseWith(std::string(R"("input":"hi","tools":)") + kAgentTools + R"(,"tool_choice":)" + choice));
    ASSERT_TRUE(forced) << forced.error().message;
    EXPECT_EQ(forced->tools.forced_tool, name);
  }
}

TEST(ResponsesParse, FormatsOfCustomToolsThatAreNotKnownAreLeftOut) {
  for (const std::string format : {R"({"type":"grammar","syntax":"abnf","definition":"a"})",
                                   R"({"type":"grammar","syntax":"regex"})", R"({"type":"xml"})"}) {
    const auto parsed = ParseResponses(
        ResponseWith(R"("input":"hi","tools":[{"type":"custom","name":"f","format":)" + format + "}]"));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_THAT(parsed->unknown_options, ElementsAre("tools.f.format")) << format;
    EXPECT_THAT(parsed->tools.tools[0].parameters_json, ::testing::Not(HasSubstr("x-grammar")));
  }
}

TEST(ResponsesParse, CopiesOfANamespaceAreBounded) {
  const auto parsed = [](size_t bytes, size_t members) {
    std::string list;
    for (size_t i = 0; i < members; ++i)
      list += (i > 0 ? "," : "") + std::string(R"({"type":"function","name":"g"})");
    return ParseResponses(ResponseWith(R"("input":"hi","tools":[{"type":"namespace","name":")" +
                                       std::string(bytes, 'n') + R"(","tools":[)" + list + "]}]"));
  };
  EXPECT_TRUE(parsed(1000, 100));
  for (const auto& refused : {parsed(size_t{1} << 20, 100), parsed(1, kToolsMax + 1)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
    EXPECT_EQ(refused.error().field, "tools");
  }
}

TEST(ResponsesParse, AllowedToolsStayInThePrompt) {
  const auto parsed = ParseResponses(ResponseWith(
      std::string(R"("input":"hi","tools":)") + kAgentTools +
      R"(,"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"custom","name":"patch"},)"
      R"({"type":"web_search"}]})"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->tools.choice, ToolChoice::kRequired);
  std::vector<bool> callable;
  for (const Tool& tool : parsed->tools.tools) callable.push_back(tool.callable);
  EXPECT_THAT(callable, ElementsAre(false, false, true, false));
}

TEST(ResponsesParse, ErrorsNameTheField) {
  struct Case {
    std::string fields, field;
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  const std::vector<Case> cases = {
      {R"("x":1)", "input"},
      {R"("input":5)", "input"},
      {R"("input":[])", "input"},
      {R"("input":[5])", "input[0]"},
      {R"("input":[{"type":"reasoning"}])", "input"},
      {R"("input":[{"role":"robot","content":"x"}])", "input[0].role"},
      {R"("input":[{"role":"user"}])", "input[0].content"},
      {R"("input":[{"role":"user","content":[{"text":"x"}]}])", "input[0].content[0].type"},
      {R"("input":[{"type":"function_call","name":"f"}])", "input[0].call_id"},
      {R"("input":[{"type":"function_call_output","call_id":"c"}])", "input[0].output"},
      {R"("input":"a","max_output_tokens":0)", "max_output_tokens"},
      {R"("input":"a","text":{"format":{"type":"xml"}})", "text.format.type"},
      {R"("input":"a","text":{"format":{"type":"json_schema"}})", "text.format.schema"},
      {R"("input":"a","tools":[{"type":"function"}])", "tools[0].name"},
      {R"("input":"a","tools":[{"type":"function","name":"f","parameters":5}])", "tools[0].parameters"},
      {R"("input":"a","tools":[{"type":"shell"}],"tool_choice":{"type":"shell"})", "tool_choice.type",
       ErrorCode::kUnsupported},
      {R"("input":"a","tools":[{"type":"namespace","name":"n"}])", "tools[0].tools"},
      {R"("input":"a","tools":[{"type":"web_search"}],"tool_choice":"required")", "tool_choice"},
      {R"("input":"a","tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"})",
       "tool_choice.type", ErrorCode::kUnsupported},
      {R"("input":[{"type":"local_shell_call","call_id":"c"}])", "input[0].action"},
      {R"("input":[{"type":"item_reference","id":"c"}])", "input"},
      {R"("input":"a","guided_grammar":"x")", "guided_grammar", ErrorCode::kUnsupported},
      {R"("input":"a","tool_choice":"required")", "tool_choice"},
      {R"("input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"})",
       "tool_choice"},
      {R"("input":"a","tool_choice":{"type":"file_search"})", "tool_choice.type", ErrorCode::kUnsupported},
      {R"("input":[{"type":"unheard_of","id":"x"}])", "input[0].type", ErrorCode::kUnsupported},
      {R"("input":"a","previous_response_id":"resp_1")", "previous_response_id", ErrorCode::kUnsupported},
      {R"("input":"a","conversation":{"id":"x"})", "conversation", ErrorCode::kUnsupported},
      {R"("input":"a","background":true)", "background", ErrorCode::kUnsupported}};
  for (const Case& one : cases) {
    const auto parsed = ParseResponses(ResponseWith(one.fields));
    ASSERT_FALSE(parsed) << one.fields;
    EXPECT_EQ(parsed.error().field, one.field) << one.fields;
    EXPECT_EQ(parsed.error().code, one.code) << one.fields;
    EXPECT_EQ(HttpStatus(parsed.error().code), 400);
  }
}

// ---- replies ----

ResponseHead ResponseHeadOf(bool stream) {
  return {.id = "resp_1",
          .message_id = "msg_1",
          .model = "M",
          .created = std::chrono::system_clock::time_point(std::chrono::seconds(1785585600)),
          .stream = stream,
          .instructions = "",
          .max_output_tokens = 9,
          .temperature = 0.5F,
          .top_p = 1};
}

std::vector<Event> Story(FinishReason reason) {
  Finished finished{.reason = reason, .stop_string = {}, .usage = {}};
  finished.usage.prompt_tokens = 20;
  finished.usage.cached_tokens = 12;
  finished.usage.output_tokens = 3;
  return {PromptReady{20, 12}, TextDelta{"H\"", {}, 1}, TextDelta{"", {}, 1}, TextDelta{"i", {}, 1},
          finished};
}

std::string TranscribeResponse(bool stream, const std::vector<Event>& events) {
  ResponsesEncoder encoder(ResponseHeadOf(stream));
  std::string out;
  for (const Event& event : events) out += encoder.OnEvent(event);
  return out;
}

const std::string kMessage =
    R"({"id":"msg_1","type":"message","status":"completed","role":"assistant","content":)"
    R"([{"type":"output_text","text":"H\"i","annotations":[],"logprobs":[]}]})";

TEST(ResponsesReply, Whole) {
  EXPECT_EQ(
      TranscribeResponse(false, Story(FinishReason::kStop)),
      R"({"id":"resp_1","object":"response","created_at":1785585600,"status":"completed","error":null,)"
      R"("incomplete_details":null,"instructions":null,"max_output_tokens":9,"model":"M","output":[)" +
          kMessage +
          R"(],"parallel_tool_calls":true,"previous_response_id":null,"store":false,"temperature":0.5,)"
          R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1.0,)"
          R"("truncation":"disabled","usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":12},)"
          R"("output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":23},"metadata":{},)"
          R"("timings":{"cache_n":12,"prompt_n":8,"prompt_ms":1e-06,"prompt_per_token_ms":1.25e-07,)"
          R"("prompt_per_second":8000000000.0,"predicted_n":3,"predicted_ms":1e-06,)"
          R"("predicted_per_token_ms":3.333333333333333e-07,"predicted_per_second":3000000000.0}})");
}

TEST(ResponsesReply, WhatIsCutIsIncomplete) {
  const json body = json::parse(TranscribeResponse(false, Story(FinishReason::kLength)));
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["status"], "incomplete");
}

struct Sent {
  std::string name;
  json data;
};

std::vector<Sent> EventsOf(const std::string& stream) {
  std::vector<Sent> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    const size_t line = stream.find('\n', at);
    events.push_back(
        {stream.substr(at + 7, line - at - 7), json::parse(stream.substr(line + 7, end - line - 7))});
    at = end + 2;
  }
  return events;
}

TEST(ResponsesReply, StreamedEventsComeInOrderAndNumbered) {
  const auto events = EventsOf(TranscribeResponse(true, Story(FinishReason::kStop)));
  std::vector<std::string> names;
  for (size_t i = 0; i < events.size(); ++i) {
    names.push_back(events[i].name);
    EXPECT_EQ(events[i].data["type"], events[i].name);
    EXPECT_EQ(events[i].data["sequence_number"], i);
  }
  EXPECT_THAT(names,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.delta", "response.output_text.done",
                          "response.content_part.done", "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[0].data["response"]["status"], "in_progress");
  EXPECT_EQ(events[2].data["item"]["content"], json::array());
  EXPECT_EQ(events[5].data["delta"], "i");
  EXPECT_EQ(events[6].data["text"], "H\"i");
  EXPECT_EQ(events[8].data["item"], json::parse(kMessage));
  EXPECT_EQ(events[9].data["response"], json::parse(TranscribeResponse(false, Story(FinishReason::kStop))));
}

TEST(ResponsesReply, ThinkingAndCallsAreItemsOfTheirOwn) {
  TextDelta call{""};
  call.tool_calls = {{"call_1", "f", R"({"a":1})"}, {"call_2", "g", "{}"}};
  TextDelta thought{"", {}, 4};
  thought.thinking = "hm";
  Finished end = std::get<Finished>(Story(FinishReason::kStop).back());
  end.usage.reasoning_tokens = 4;
  const std::vector<Event> story = {PromptReady{20, 12}, thought, TextDelta{"So", {}, 1}, call, end};
  const auto events = EventsOf(TranscribeResponse(true, story));
  std::vector<std::string> names;
  for (const Sent& event : events) names.push_back(event.name.substr(event.name.find('.') + 1));
  EXPECT_THAT(names,
              ElementsAre("created", "in_progress", "output_item.added", "reasoning_summary_part.added",
                          "reasoning_summary_text.delta", "reasoning_summary_text.done",
                          "reasoning_summary_part.done", "output_item.done", "output_item.added",
                          "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
                          "output_item.done", "output_item.added", "function_call_arguments.delta",
                          "function_call_arguments.done", "output_item.done", "output_item.added",
                          "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
                          "completed"));
  const json response = events.back().data["response"];
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 4);
  const json& output = response["output"];
  ASSERT_EQ(output.size(), 4U);
  EXPECT_EQ(output[0]["summary"][0]["text"], "hm");
  EXPECT_EQ(output[1]["content"][0]["text"], "So");
  EXPECT_EQ(output[2]["call_id"], "call_1");
  EXPECT_EQ(output[2]["arguments"], R"({"a":1})");
  EXPECT_EQ(output[3]["name"], "g");
  EXPECT_NE(output[2]["id"], output[3]["id"]);
  EXPECT_EQ(events[17].data["item"], output[2]);
  EXPECT_EQ(events[14].data["item"]["arguments"], "");
  EXPECT_EQ(events[15].data["output_index"], 2);
  EXPECT_EQ(json::parse(TranscribeResponse(false, story)), response);
}

TEST(ResponsesReply, CallsOfEveryKindOfTool) {
  TextDelta calls{""};
  calls.tool_calls = {{"c1", "n.g", R"({"a":1})"},
                      {"c2", "patch", R"({"input":"*** \"x\""})"},
                      {"c3", "local_shell", R"({"command":["ls","-l"],"workdir":"/tmp"})"}};
  ResponseHead head = ResponseHeadOf(true);
  head.special_tools = {{ResponsesTool::Kind::kMember, "n.g", "n"},
                        {ResponsesTool::Kind::kCustom, "patch"},
                        {ResponsesTool::Kind::kLocalShell, "local_shell"}};
  ResponsesEncoder encoder(head);
  std::string out;
  for (const Event& event :
       std::vector<Event>{PromptReady{20, 12}, calls, Story(FinishReason::kStop).back()}) {
    out += encoder.OnEvent(event);
  }
  std::vector<std::string> names;
  const auto events = EventsOf(out);
  for (const Sent& event : events) names.push_back(event.name.substr(event.name.find('.') + 1));
  EXPECT_THAT(names,
              ElementsAre("created", "in_progress", "output_item.added", "function_call_arguments.delta",
                          "function_call_arguments.done", "output_item.done", "output_item.added",
                          "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
                          "output_item.added", "output_item.done", "completed"));
  const json output = events.back().data["response"]["output"];
  EXPECT_EQ(output[0]["name"], "g");
  EXPECT_EQ(output[0]["namespace"], "n");
  EXPECT_EQ(output[1]["type"], "custom_tool_call");
  EXPECT_EQ(output[1]["input"], "*** \"x\"");
  EXPECT_EQ(events[7].data["delta"], "*** \"x\"");
  EXPECT_EQ(events[8].data["input"], "*** \"x\"");
  EXPECT_EQ(events[6].data["item"]["input"], "");
  EXPECT_EQ(output[2]["type"], "local_shell_call");
  EXPECT_EQ(output[2]["action"]["command"], json::parse(R"(["ls","-l"])"));
  EXPECT_EQ(output[2]["action"]["working_directory"], "/tmp");
}

TEST(ResponsesReply, AnEmptyAnswerIsAnEmptyMessage) {
  const auto events =
      EventsOf(TranscribeResponse(true, {PromptReady{20, 12}, Story(FinishReason::kLength).back()}));
  EXPECT_EQ(events.back().name, "response.incomplete");
  EXPECT_EQ(events.size(), 8U);
  EXPECT_EQ(events.back().data["response"]["output"][0]["content"][0]["text"], "");
}

TEST(ResponsesReply, AFailureIsAnErrorEvent) {
  const auto events =
      EventsOf(TranscribeResponse(true, {PromptReady{1, 0}, Failed{{ErrorCode::kRunnerDied, "died", ""}}}));
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().data["message"], "died");
  EXPECT_EQ(events.back().data["sequence_number"], 2);
}

TEST(ResponsesParse, ReadsImagesAndScreenshots) {
  auto request = ParseResponses(ResponseWith(R"("input":[
      {"role":"user","content":[{"type":"input_text","text":"a"},
        {"type":"input_image","image_url":"data:image/png;base64,aGk=","detail":"auto"}]},
      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"aGk="}]},
      {"type":"computer_call","call_id":"d","action":{"type":"screenshot"}},
      {"type":"computer_call_output","call_id":"d",
        "output":{"type":"computer_screenshot","image_url":"data:image/png;base64,aGk="}},
      {"role":"user","content":[{"type":"input_image","image_url":"http://a/b.png"}]}])"));
  ASSERT_TRUE(request) << request.error().message;
  const auto images = [&request](size_t i) { return request->messages.at(i).images; };
  ASSERT_EQ(images(0).size(), 1U);
  EXPECT_EQ(images(0)[0].at, 1U);
  EXPECT_EQ(*images(0)[0].file, "hi");
  for (const size_t i : {size_t{2}, size_t{4}}) {
    ASSERT_EQ(images(i).size(), 1U) << i;
    EXPECT_EQ(request->messages[i].content, "") << i;
  }
  EXPECT_EQ(SettleImages(request->image_use, true, request->messages).error().field,
            "input[5].content[0].image_url");
  EXPECT_EQ(SettleImages(request->image_use, false, request->messages).error().field,
            "input[5].content[0].type");
}

}  // namespace
TEST(ParseResponses, WhatIsOfferedOrReferredToIsLeftOutAndNamed) {
  const auto parsed = ParseResponses(ResponseWith(
      R"("tools":[{"type":"function","name":"f"},{"type":"apply_patch"},{"type":"shell"},{"type":"computer_use"},)"
      R"({"type":"unheard_of"},{"type":"namespace","name":"n","tools":[{"type":"custom","name":"c"}]}],)"
      R"("input":[{"type":"item_reference","id":"x"},{"type":"compaction","encrypted_content":"e"},)"
      R"({"role":"user","content":"a"},{"type":"apply_patch_call","call_id":"1","operation":{"path":"p"}},)"
      R"({"type":"apply_patch_call_output","call_id":"1","output":"done"},)"
      R"({"type":"shell_call","call_id":"2","action":{"commands":["ls"]}},)"
      R"({"type":"shell_call_output","call_id":"2","output":[{"stdout":"a","exit_code":0}]}])"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(
      parsed->unknown_options,
      UnorderedElementsAre("tools.apply_patch", "tools.shell", "tools.computer_use", "tools.unheard_of",
                           "tools.custom", "input.item_reference", "input.compaction"));
  ASSERT_EQ(parsed->tools.tools.size(), 1U);
  ASSERT_EQ(parsed->messages.size(), 5U);
  EXPECT_EQ(parsed->messages[1].tool_calls[0].name, "apply_patch");
  EXPECT_EQ(parsed->messages[1].tool_calls[0].arguments_json, R"({"path":"p"})");
  EXPECT_EQ(parsed->messages[2].content, "done");
  EXPECT_EQ(parsed->messages[2].tool_name, "apply_patch");
  EXPECT_EQ(parsed->messages[3].tool_calls[0].arguments_json, R"({"commands":["ls"]})");
  EXPECT_EQ(parsed->messages[4].content, R"([{"stdout":"a","exit_code":0}])");
}

}  // namespace quire::api::openai
