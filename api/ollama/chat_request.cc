#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/image_fields.h"
#include "api/json/omitted_content.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/ollama/chat.h"

namespace quire::api::ollama {
namespace {

void Refuse(Fields& body, std::string field, std::string message) {
  if (body.ok()) body.error() = Error{ErrorCode::kUnsupported, std::move(message), std::move(field)};
}

// "images": each takes the place of the first "[img]" that is left in the text, else it stands before the
// text.
void GetImages(Fields& fields, const std::string& model, OmittedContent::Turn turn, OmittedContent& omitted,
               Message& message) {
  constexpr std::string_view kName = "images", kPlace = "[img]";
  const Json* list = fields.FindArray(kName);
  size_t from = 0;  // behind the last place
  for (size_t i = 0; list != nullptr && i < list->size() && fields.ok(); ++i) {
    const Json& value = (*list)[i];
    if (!value.is_string()) return fields.Reject(kName, "must be an array of strings");
    auto file = ReadImage(TakeText(value), fields.PathOf(fmt::format("{}[{}]", kName, i)));
    Error text_only{ErrorCode::kUnsupported, fmt::format("{} does not support images", model),
                    fields.PathOf(kName)};
    omitted.AddImage(message, std::move(file), turn, std::move(text_only));
    Image& image = message.images.back();
    image.at = 0;
    const size_t place = message.content.find(kPlace, from);
    if (place == std::string::npos) continue;
    message.content.erase(place, kPlace.size());
    from = image.at = place;
  }
  std::ranges::stable_sort(message.images, {}, &Image::at);
}

void CheckDebugRender(Fields& body) {
  bool render_only = false;
  if (body.Get("_debug_render_only", render_only) && render_only) {
    Refuse(body, "_debug_render_only", "_debug_render_only is not supported in this version");
  }
}

void GetCommon(Fields& body, CommonRequest& request) {
  request.model = GetModel(body);
  body.Get("stream", request.stream);
  request.keep_alive = GetKeepAlive(body);
  GetOptions(body, request.options, request.unknown_options);
  GetOption(body, "structured_output_whitespace", request.options);
  body.Get("truncate", request.truncate);
  body.Get("shift", request.shift);
  body.Get("logprobs", request.logprobs);
  request.top_logprobs = GetTopLogprobs(body);
  request.cache_salt = GetCacheSalt(body);
  request.think = GetThink(body);
  request.format = GetFormat(body);
  body.Get("return_progress", request.return_progress);
  CheckDebugRender(body);
}

void GetContext(Fields& body, std::vector<TokenId>& context) {
  const Json* list = body.FindArray("context");
  if (list == nullptr) return;
  context.reserve(list->size());
  for (const Json& value : *list) {
    const auto token = AsInteger(value);
    if (!token || *token < 0 || *token > std::numeric_limits<TokenId>::max()) {
      return body.Reject("context", "must be an array of token ids");
    }
    context.push_back(static_cast<TokenId>(*token));
  }
}

void GetGenerate(Fields& body, GenerateRequest& request) {
  GetCommon(body, request);
  body.Take("prompt", request.prompt);
  body.Take("system", request.system);
  body.Get("raw", request.raw);
  GetContext(body, request.context);
  body.Take("suffix", request.suffix);
  body.Take("template", request.go_template);
  if (request.raw && (!request.system.empty() || !request.go_template.empty() || !request.context.empty())) {
    body.Reject("raw", "cannot be combined with system, template or context");
  }
  if (!request.suffix.empty() && (!request.system.empty() || !request.context.empty())) {
    body.Reject("suffix", "cannot be combined with system or context");
  }
  OmittedContent omitted;
  Message message{"user", std::move(request.prompt)};
  GetImages(body, request.model, OmittedContent::Turn::kNow, omitted, message);
  request.prompt = std::move(message.content);
  request.images = std::move(message.images);
  request.image_use = omitted.images();
  if (request.image_use.any && (request.raw || !request.suffix.empty()))
    body.Reject("images", "cannot be combined with raw or suffix");
  body.AddUnread({}, request.unknown_options);
}

// A text, or a list of text parts as other servers take it.
void GetContent(Fields& message, std::string& text) {
  const Json* content = message.Find("content");
  if (content == nullptr || !content->is_array()) {
    message.Take("content", text);
    return;
  }
  for (size_t i = 0; i < content->size() && message.ok(); ++i) {
    Fields part((*content)[i], message.PathOf(fmt::format("content[{}]", i)), message.error());
    std::string type, piece;
    part.Get("type", type);
    if (type != "text") part.Reject("type", "must be \"text\"");
    if (!part.Get("text", piece)) part.Reject("text", "is required and must be of type string");
    text += piece;
  }
}

Message GetMessage(Fields& fields, const std::string& model, OmittedContent& omitted) {
  Message message;
  message.role = GetRole(fields);
  if (message.role == "assistant") omitted.AnswerFollows();
  GetContent(fields, message.content);
  fields.Take("thinking", message.thinking);
  fields.Get("tool_name", message.tool_name);
  fields.Get("tool_call_id", message.tool_call_id);
  message.tool_calls = GetToolCalls(fields);
  const auto turn = message.role == "user" ? OmittedContent::Turn::kNow : OmittedContent::Turn::kHistory;
  GetImages(fields, model, turn, omitted, message);
  return message;
}

// The fields that both kinds of request share.
Request BaseRequest(const CommonRequest& common, const ModelDefaults& defaults) {
  Request request;
  SetOptions({}, defaults.options, common.options, request);
  request.overflow = common.truncate ? Overflow::kTruncate : Overflow::kRefuse;
  request.shift = common.shift;
  request.client.cache_salt = common.cache_salt;
  request.logprobs = common.logprobs;
  request.top_logprobs = common.logprobs ? common.top_logprobs : 0;
  request.think = common.think;
  request.format = common.format;
  request.report_progress = common.stream && common.return_progress;
  request.model_name = common.model;
  return request;
}

template <class Parsed, class GetAll>
Result<Parsed> Parse(std::string_view text, GetAll get_all) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  Parsed parsed;
  FirstError error;
  Fields body(*json, "", error);
  get_all(body, parsed);
  if (error) return std::unexpected(std::move(*error));
  return parsed;
}

}  // namespace

Result<GenerateRequest> ParseGenerate(std::string_view body) {
  return Parse<GenerateRequest>(body, GetGenerate);
}

Result<ChatRequest> ParseChat(std::string_view body) {
  return Parse<ChatRequest>(body, [](Fields& fields, ChatRequest& request) {
    GetCommon(fields, request);
    request.tools.tools = GetTools(fields, &request.tools.left_out);
    for (const std::string& name : request.tools.left_out) request.unknown_options.push_back("tools." + name);
    OmittedContent omitted;
    request.messages =
        MessageList(fields).Get([&](Fields& message) { return GetMessage(message, request.model, omitted); });
    omitted.Finish(fields, request.unknown_options);
    request.image_use = omitted.images();
    CopyBudget copies(fields);
    NameToolResults(request.messages, 1, copies);
    fields.AddUnread({}, request.unknown_options);
  });
}

Result<ShowRequest> ParseShow(std::string_view body) {
  return Parse<ShowRequest>(body, [](Fields& fields, ShowRequest& request) {
    request.model = GetModel(fields, /*name_too=*/true);
    fields.Get("verbose", request.verbose);
    fields.Get("check", request.check);
    fields.Get("system", request.system);
    if (const Json* options = fields.FindObject("options")) request.options_json = DumpJson(*options);
  });
}

Request ToRequest(GenerateRequest generate, const ModelDefaults& defaults) {
  Request request = BaseRequest(generate, defaults);
  request.go_template = std::move(generate.go_template);
  if (!generate.suffix.empty()) {
    request.prompt = FimPrompt{std::move(generate.prompt), std::move(generate.suffix)};
    request.return_context = !generate.raw;
    return request;
  }
  if (generate.raw) {
    request.prompt = RawPrompt{std::move(generate.prompt)};
    return request;
  }
  // Rows of images are no tokens that a client could send again.
  request.return_context = generate.images.empty();
  Message question{"user", std::move(generate.prompt)};
  question.images = std::move(generate.images);
  std::vector<Message> turn;
  if (!generate.system.empty()) turn.push_back({"system", std::move(generate.system)});
  if (!generate.context.empty()) {
    // The earlier exchange already holds what the model adds.
    turn.push_back(std::move(question));
    request.prompt = ContinuedPrompt{std::move(generate.context), std::move(turn)};
    return request;
  }
  // Here the system text replaces the model's and stands before the model's messages.
  if (turn.empty() && !defaults.system.empty()) turn.push_back({"system", defaults.system});
  turn.insert(turn.end(), defaults.messages.begin(), defaults.messages.end());
  turn.push_back(std::move(question));
  request.prompt = ContinuedPrompt{{}, std::move(turn)};
  return request;
}

Request ToRequest(ChatRequest chat, const ModelDefaults& defaults) {
  Request request = BaseRequest(chat, defaults);
  ChatPrompt prompt{WithDefaults(std::move(chat.messages), defaults)};
  SetToolUse(std::move(chat.tools), request, prompt);
  request.prompt = std::move(prompt);
  return request;
}

}  // namespace quire::api::ollama
