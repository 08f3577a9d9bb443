#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/anthropic/content_blocks.h"
#include "api/anthropic/messages.h"
#include "api/base/image_use.h"
#include "api/base/limits.h"
#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/omitted_content.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/json/text.h"

namespace quire::api::anthropic {
namespace {

void Refuse(Fields& fields, std::string_view field, std::string message) {
  if (fields.ok()) fields.error() = Error{ErrorCode::kUnsupported, std::move(message), fields.PathOf(field)};
}

constexpr size_t kCacheMarksMax = 4;  // as Anthropic has it

// Whether a block, a message, a tool or the request has a mark for the prefix cache.
bool HasMark(Fields& fields) {
  const Json* value = fields.FindObject("cache_control");
  if (value == nullptr) return false;
  Fields control(*value, fields.PathOf("cache_control"), fields.error());
  if (RequireString(control, "type") != "ephemeral") control.Reject("type", "must be ephemeral");
  std::string ttl = "5m";
  control.Get("ttl", ttl);
  if (!OneOf(ttl, {"5m", "1h"})) control.Reject("ttl", "must be 5m or 1h");
  return true;
}

// The messages of one request, from those of the body.
class Turns {
 public:
  Turns(Fields& body, const std::string& model) : body_(body), model_(model) {}

  std::vector<Message> Get() {
    GetSystem();
    const Json* list = body_.FindArray("messages");
    if (list == nullptr || list->empty()) body_.Reject("messages", "must be a non-empty array");
    for (size_t i = 0; body_.ok() && i < list->size(); ++i) {
      Fields message((*list)[i], fmt::format("messages[{}]", i), body_.error());
      GetMessage(message);
      if (Marks(message)) messages_.back().restore_point = true;
    }
    FlushSystem();
    if (body_.ok() && Marks(body_)) messages_.back().restore_point = true;
    return std::move(messages_);
  }
  size_t marks() const { return marks_; }
  const OmittedContent& omitted() const { return omitted_; }

 private:
  bool Marks(Fields& fields) {
    if (!fields.ok() || !HasMark(fields)) return false;
    ++marks_;
    return fields.ok();
  }

  void GetSystem() {
    const Json* system = body_.Find("system");
    if (system == nullptr) return;
    Message message{.role = "system", .content = {}};
    std::string& text = message.content;
    ForEachBlock(body_, "system", *system, [&](Fields& block, std::string_view type) {
      if (type != "text") return block.Reject("type", "must be \"text\"");
      if (!text.empty()) text += '\n';
      AppendText(text, RequireString(block, "text"));
      if (Marks(block)) message.restore_point = true;
    });
    if (!text.empty()) Add(std::move(message));
  }

  void GetMessage(Fields& message) {
    const std::string role = GetRole(message);
    if (!OneOf(role, {"user", "assistant", "system"})) {
      return message.Reject("role", "must be user, assistant or system");
    }
    const Json* content = message.Find("content");
    if (content == nullptr && role != "assistant") {
      return message.Reject("content", "is required and must be of type string or array of content blocks");
    }
    if (role == "system") return GetLaterSystem(message, *content);
    if (role == "assistant") FlushSystem();
    if (role == "assistant") omitted_.AnswerFollows();
    current_ = {.role = role, .content = {}};
    has_text_ = false;
    if (content != nullptr) {
      ForEachBlock(message, "content", *content,
                   [&](Fields& block, std::string_view type) { GetBlock(block, type); });
    }
    if (!later_system_.empty()) {
      const bool apart = !current_.content.empty();
      PrependText(current_, std::exchange(later_system_, {}) + (apart ? "\n" : ""));
      has_text_ = true;
    }
    // A message that was nothing but results of tools has become those.
    if (has_text_ || messages_.empty() || messages_.back().role != "tool" || role == "assistant") {
      Add(std::move(current_));
    }
  }

  // A system message among the others. Most templates want theirs first, and users and assistants in turns:
  // one that stands first goes on with the system text, a later one becomes part of the user's message beside
  // it.
  void GetLaterSystem(Fields& message, const Json& content) {
    std::string text;
    bool marked = false;
    ForEachBlock(message, "content", content, [&](Fields& block, std::string_view type) {
      if (type != "text") return block.Reject("type", "must be \"text\"");
      AppendLine(text, RequireString(block, "text"));
      marked = Marks(block) || marked;
    });
    if (messages_.empty()) {
      Add({.role = "system", .content = std::move(text)});
    } else if (OneOf(messages_.back().role, {"user", "system"})) {
      AppendLine(messages_.back().content, text);
    } else {
      AppendLine(later_system_, text);
      return;
    }
    messages_.back().restore_point = messages_.back().restore_point || marked;
  }

  // No message of the user's came behind it.
  void FlushSystem() {
    if (!later_system_.empty()) Add({.role = "user", .content = std::exchange(later_system_, {})});
  }

  void GetBlock(Fields& block, std::string_view type) {
    const bool assistant = current_.role == "assistant";
    if (type == "text") {
      AppendText(current_.content, RequireString(block, "text"));
      has_text_ = true;
    } else if (type == "tool_use" && assistant) {
      GetToolUse(block);
    } else if (type == "tool_result" && !assistant) {
      GetToolResult(block);
    } else if (OneOf(type, {"tool_use", "tool_result"})) {
      block.Reject("type",
                   fmt::format("\"{}\" is not allowed in a message with role {}", type, current_.role));
    } else if (type == "thinking") {
      AppendText(current_.thinking, RequireString(block, "thinking"));
    } else if (type != "redacted_thinking") {
      AddContent(block, type, current_,
                 assistant ? OmittedContent::Turn::kHistory : OmittedContent::Turn::kNow);
      has_text_ = true;
    }
    if (type != "tool_result" && Marks(block)) current_.restore_point = true;
  }

  // Images, and blocks that hold text in a form of their own, on lines of their own; of others a line that
  // says what was there.
  void AddContent(Fields& block, std::string_view type, Message& message, OmittedContent::Turn turn) {
    if (!block.ok()) return;
    std::string refusal = fmt::format("{} does not support content of type \"{}\"", model_, type);
    if (type == "image") {
      Error text_only{ErrorCode::kUnsupported, std::move(refusal), block.PathOf("type")};
      return omitted_.AddImage(message, ImageOfBlock(block), turn, std::move(text_only));
    }
    std::optional<std::string> found = TextOfBlock(block, type);
    if (!found) found = omitted_.LineFor(block, "type", type, turn, std::move(refusal));
    std::string& text = message.content;
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += *found + "\n";
  }

  void GetToolUse(Fields& block) {
    ToolCall call{RequireString(block, "id"), RequireString(block, "name"), "{}"};
    if (const Json* input = block.Find("input")) {
      call.arguments_json =
          input->is_string() ? ArgumentsOfText(input->get<std::string>()) : DumpJson(*input);
    }
    called_[call.id] = call.name;
    current_.tool_calls.push_back(std::move(call));
    Count();
  }

  void GetToolResult(Fields& block) {
    if (has_text_) Add(std::exchange(current_, {.role = "user", .content = {}}));
    has_text_ = false;
    Message result{.role = "tool", .content = {}};
    result.tool_call_id = RequireString(block, "tool_use_id");
    const auto call = called_.find(result.tool_call_id);
    if (call != called_.end() && copies_.Spend("messages", call->second.size(), 1, kForAllResults)) {
      result.tool_name = call->second;
    }
    bool is_error = false;
    block.Get("is_error", is_error);
    result.restore_point = Marks(block);
    if (const Json* content = block.Find("content")) {
      ForEachBlock(block, "content", *content, [&](Fields& inner, std::string_view type) {
        if (type == "text") {
          AppendText(result.content, RequireString(inner, "text"));
        } else {
          AddContent(inner, type, result, OmittedContent::Turn::kHistory);
        }
        if (Marks(inner)) result.restore_point = true;
      });
    }
    Add(std::move(result));
  }

  void Add(Message message) {
    messages_.push_back(std::move(message));
    Count();
  }

  void Count() {
    if (++counted_ <= kMessagesMax) return;
    body_.Reject("messages", fmt::format("contains more than {} messages and tool calls", kMessagesMax),
                 ErrorCode::kTooLarge);
  }

  Fields& body_;
  CopyBudget copies_{body_};
  const std::string& model_;
  std::vector<Message> messages_;
  std::map<std::string, std::string> called_;  // id -> name of every call so far
  Message current_;
  OmittedContent omitted_;
  bool has_text_ = false;     // current_ holds text
  std::string later_system_;  // goes to the next message of the user's
  size_t counted_ = 0;
  size_t marks_ = 0;  // of messages and their blocks
};

// Tools that Anthropic defines and the client runs: their types go on with a date. Arguments as its
// documentation has them.
struct ClientTool {
  std::string_view type;
  std::string_view description;
  std::string_view parameters;
};
constexpr std::array kClientTools = {
    ClientTool{
        "bash_", "Runs commands in a bash shell.",
        R"({"type":"object","properties":{"command":{"type":"string"},"restart":{"type":"boolean"}}})"},
    ClientTool{
        "text_editor_", "Views, creates and edits files.",
        R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace",)"
        R"("insert","undo_edit"]},"path":{"type":"string"},"file_text":{"type":"string"},"old_str":{"type":)"
        R"("string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":)"
        R"("string"},"view_range":{"type":"array","items":{"type":"integer"}}},"required":["command","path"]})"},
    ClientTool{
        "memory_", "Keeps notes in files below /memories.",
        R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace",)"
        R"("insert","delete","rename"]},"path":{"type":"string"},"file_text":{"type":"string"},"old_str":)"
        R"({"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":)"
        R"({"type":"string"},"old_path":{"type":"string"},"new_path":{"type":"string"},"view_range":{"type":)"
        R"("array","items":{"type":"integer"}}},"required":["command"]})"},
    ClientTool{
        "computer_", "Uses the computer: screen, mouse and keyboard.",
        R"({"type":"object","properties":{"action":{"type":"string"},"coordinate":{"type":"array","items":)"
        R"({"type":"integer"}},"start_coordinate":{"type":"array","items":{"type":"integer"}},"text":{"type":)"
        R"("string"},"duration":{"type":"number"},"scroll_direction":{"type":"string"},"scroll_amount":)"
        R"({"type":"integer"}},"required":["action"]})"},
};

// Tools that Anthropic's servers run.
bool RunsOnTheServer(std::string_view type) {
  constexpr std::array<std::string_view, 4> kServerTools = {"web_search_", "web_fetch_", "code_execution_",
                                                            "tool_search_tool_"};
  return std::ranges::any_of(kServerTools,
                             [type](std::string_view begin) { return type.starts_with(begin); });
}

Tool GetClientTool(Fields& fields, const ClientTool& known) {
  Tool tool{.name = RequireString(fields, "name"), .parameters_json = std::string(known.parameters)};
  const Json function = {
      {"name", tool.name}, {"description", known.description}, {"parameters", Json::parse(known.parameters)}};
  const Json definition = {{"type", "function"}, {"function", function}};
  tool.definition_json = DumpJson(definition);
  tool.restore_point = HasMark(fields);
  return tool;
}

// A tool has its schema beside its name. One that would run on the server is left out.
Tool GetTool(Fields& fields, const Json&) {
  std::string type = "custom";
  std::string description;
  fields.Get("type", type);
  const auto* known = std::ranges::find_if(
      kClientTools, [&type](const ClientTool& one) { return std::string_view(type).starts_with(one.type); });
  if (known != kClientTools.end()) return GetClientTool(fields, *known);
  if (RunsOnTheServer(type)) return {.name = RequireString(fields, "name")};
  if (type != "custom") {  // as "mcp_toolset", which has no name
    std::string name = type;
    fields.Get("name", name);
    return {.name = std::move(name)};
  }
  Tool tool{.name = RequireString(fields, "name")};
  Json function = {{"name", tool.name}};
  if (fields.Get("description", description)) function["description"] = description;
  if (const Json* schema = fields.FindObject("input_schema")) {
    tool.parameters_json = DumpJson(*schema);
    function["parameters"] = *schema;
  }
  tool.parameters_field = fields.PathOf("input_schema");
  tool.restore_point = HasMark(fields);
  if (fields.Get("strict", tool.strict)) function["strict"] = tool.strict;
  const Json definition = {{"type", "function"}, {"function", std::move(function)}};
  tool.definition_json = DumpJson(definition);
  return tool;
}

ToolUse GetToolChoice(Fields& body) {
  ToolUse use;
  use.tools = GetTools(body, GetTool, &use.left_out);
  const Json* value = body.FindObject("tool_choice");
  if (value == nullptr) return use;
  Fields choice(*value, "tool_choice", body.error());
  const std::string type = RequireString(choice, "type");
  const bool says_single = choice.Get("disable_parallel_tool_use", use.single_call);
  if (!OneOf(type, {"auto", "any", "tool", "none"})) choice.Reject("type", "must be auto, any, tool or none");
  if (type == "none") use.tools.clear();
  if (!OneOf(type, {"any", "tool"})) return use;
  use.choice = ToolChoice::kRequired;
  if (!says_single) use.single_call = true;
  if (type == "tool") use.forced_tool = RequireString(choice, "name");
  if (type == "tool" && std::ranges::find(use.left_out, use.forced_tool) != use.left_out.end()) {
    Refuse(choice, "name", fmt::format("\"{}\" is a tool that this server does not have", use.forced_tool));
  } else if (use.tools.empty()) {
    choice.Reject("type", "requires tools");
  } else if (type == "tool" && !HasTool(use.tools, use.forced_tool)) {
    choice.Reject("name", fmt::format("\"{}\" is not one of the tools", use.forced_tool));
  }
  return use;
}

Think GetThinking(Fields& body, int32_t& budget) {
  Think think = Think::kOff;
  if (const Json* value = body.FindObject("thinking")) {
    Fields thinking(*value, "thinking", body.error());
    const std::string type = RequireString(thinking, "type");
    if (!OneOf(type, {"enabled", "disabled", "adaptive"})) {
      thinking.Reject("type", "must be enabled, disabled or adaptive");
    }
    if (type != "disabled") think = Think::kOn;
    thinking.Get("budget_tokens", budget, 0);
  }
  if (const Json* value = body.FindObject("output_config")) {
    Fields config(*value, "output_config", body.error());
    std::string effort = "high";
    const bool given = config.Get("effort", effort);
    if (!OneOf(effort, {"low", "medium", "high", "xhigh", "max"})) {
      config.Reject("effort", "must be low, medium, high, xhigh or max");
    } else if (given && think != Think::kOff) {
      think = GetEffort(config, "effort");
    }
  }
  return think;
}

std::optional<OutputFormat> GetOutputFormat(Fields& body) {
  const Json* value = body.FindObject("output_config");
  if (value == nullptr) return std::nullopt;
  Fields config(*value, "output_config", body.error());
  return GetTypedFormat(config);
}

void CheckMarks(Fields& body, size_t marks) {
  if (marks <= kCacheMarksMax || !body.ok()) return;
  body.error() = Error{ErrorCode::kInvalidArgument,
                       fmt::format("A maximum of {} blocks with cache_control may be provided. Found {}.",
                                   kCacheMarksMax, marks),
                       "cache_control"};
}

// What lives on Anthropic's servers. Without it the request would be answered as if it were another.
void RefuseServerState(Fields& body) {
  for (const std::string_view name : {"thread", "mcp_servers", "container"}) {
    if (name == "thread" ? body.Find(name) != nullptr : HasValue(body, name)) {
      Refuse(body, name, fmt::format("{}: not supported; this server keeps nothing between requests", name));
    }
  }
}

void GetPromptFields(Fields& body, MessagesRequest& request) {
  RefuseServerState(body);
  request.model = GetModel(body);
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  Turns turns(body, request.model);
  request.messages = turns.Get();
  turns.omitted().Finish(body, request.unknown_options);
  request.image_use = turns.omitted().images();
  request.tools = GetToolChoice(body);
  for (const std::string& name : request.tools.left_out) request.unknown_options.push_back("tools." + name);
  CheckMarks(body, turns.marks() + static_cast<size_t>(
                                       std::ranges::count(request.tools.tools, true, &Tool::restore_point)));
  request.think = GetThinking(body, request.thinking_tokens_max);
  request.format = GetOutputFormat(body);
}

template <class GetAll>
Result<MessagesRequest> Parse(std::string_view text, GetAll get_all) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  MessagesRequest request;
  FirstError error;
  Fields body(*json, "", error);
  get_all(body, request);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

}  // namespace

Result<MessagesRequest> ParseMessages(std::string_view body) {
  return Parse(body, [](Fields& fields, MessagesRequest& request) {
    GetPromptFields(fields, request);
    if (!fields.Get("max_tokens", request.options.num_predict, 1)) {
      fields.Reject("max_tokens", "is required and must be a positive integer");
    }
    for (const std::string_view name : {"temperature", "top_p", "top_k", "structured_output_whitespace"}) {
      GetOption(fields, name, request.options);
    }
    GetStop(fields, "stop_sequences", request.options);
    fields.Get("stream", request.stream);
    constexpr std::array<std::string_view, 2> kHarmless = {"metadata", "service_tier"};
    fields.AddUnread(kHarmless, request.unknown_options);
  });
}

Result<MessagesRequest> ParseCountTokens(std::string_view body) { return Parse(body, GetPromptFields); }

Request ToRequest(MessagesRequest messages, const ModelDefaults& defaults) {
  Options dialect;
  dialect.temperature = 1.0F;
  dialect.top_p = 1.0F;
  Request request;
  SetOptions(dialect, defaults.options, messages.options, request);
  request.overflow = Overflow::kRefuse;
  request.shift = false;  // neither the prompt nor the answer's context is cut here
  request.client.cache_salt = std::move(messages.cache_salt);
  request.model_name = std::move(messages.model);
  request.think = messages.think;
  request.thinking_tokens_max = messages.thinking_tokens_max;
  request.think_optional = true;
  request.format = std::move(messages.format);
  ChatPrompt prompt{WithDefaults(std::move(messages.messages), defaults)};
  SetToolUse(std::move(messages.tools), request, prompt);
  request.prompt = std::move(prompt);
  return request;
}

}  // namespace quire::api::anthropic
