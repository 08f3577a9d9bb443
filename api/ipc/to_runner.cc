#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>

#include "api/base/limits.h"
#include "api/ipc/messages.h"
#include "api/ipc/payload.h"

namespace quire::api::ipc {
namespace {

enum ToRunnerType : uint16_t {
  kLoadModel = 1,
  kInspectModel,
  kSubmit,
  kCredit,
  kCancel,
  kShutdown,
  kConvertModel,
  kLoadApproved
};
enum PromptKind : int32_t { kChat, kRaw, kContinued, kEmbed, kTokens, kFim };

constexpr int32_t kThreadsMax = 4096;
constexpr int32_t kWeightMax = 1'000'000;

Json Pack(const Message& message) {
  Json packed = {{"role", message.role}, {"content", message.content}};
  if (!message.thinking.empty()) packed["thinking"] = message.thinking;
  if (!message.tool_name.empty()) packed["tool_name"] = message.tool_name;
  if (!message.tool_call_id.empty()) packed["tool_call_id"] = message.tool_call_id;
  if (!message.tool_calls.empty()) packed["tool_calls"] = PackToolCalls(message.tool_calls);
  return packed;
}

Json Pack(const std::vector<Message>& messages) {
  Json packed = Json::array();
  for (const Message& message : messages) packed.push_back(Pack(message));
  return packed;
}

Json Pack(const std::vector<Tool>& tools) {
  Json packed = Json::array();
  for (const Tool& tool : tools) {
    packed.push_back({{"name", tool.name},
                      {"parameters", tool.parameters_json},
                      {"strict", tool.strict},
                      {"definition", tool.definition_json}});
  }
  return packed;
}

Json Pack(const Prompt& prompt) {
  return std::visit(
      []<class P>(const P& p) -> Json {
        if constexpr (std::is_same_v<P, ChatPrompt>) {
          return {{"kind", static_cast<int32_t>(kChat)},
                  {"messages", Pack(p.messages)},
                  {"tools", Pack(p.tools)}};
        } else if constexpr (std::is_same_v<P, RawPrompt>) {
          return {{"kind", static_cast<int32_t>(kRaw)},
                  {"text", p.text},
                  {"add_special", p.add_special},
                  {"parse_special", p.parse_special}};
        } else if constexpr (std::is_same_v<P, TokenPrompt>) {
          return {{"kind", static_cast<int32_t>(kTokens)}, {"tokens", PackTokens(p.tokens)}};
        } else if constexpr (std::is_same_v<P, FimPrompt>) {
          return {{"kind", static_cast<int32_t>(kFim)}, {"prefix", p.prefix}, {"suffix", p.suffix}};
        } else if constexpr (std::is_same_v<P, EmbedPrompt>) {
          return {{"kind", static_cast<int32_t>(kEmbed)},
                  {"text", p.text},
                  {"tokens", PackTokens(p.tokens)},
                  {"dimensions", p.dimensions},
                  {"normalize", p.normalize}};
        } else {
          return {{"kind", static_cast<int32_t>(kContinued)},
                  {"context", PackTokens(p.context)},
                  {"messages", Pack(p.messages)}};
        }
      },
      prompt);
}

// [[token, bias]]
Json PackBiases(const std::vector<LogitBias>& biases) {
  Json packed = Json::array();
  for (const LogitBias& bias : biases) packed.push_back(Json::array({bias.token, bias.bias}));
  return packed;
}

Json Pack(const GenerationParams& params) {
  return {{"num_ctx", params.num_ctx},
          {"num_predict", params.num_predict},
          {"num_keep", params.num_keep},
          {"temperature", params.temperature},
          {"top_k", params.top_k},
          {"top_p", params.top_p},
          {"min_p", params.min_p},
          {"typical_p", params.typical_p},
          {"repeat_last_n", params.repeat_last_n},
          {"repeat_penalty", params.repeat_penalty},
          {"presence_penalty", params.presence_penalty},
          {"frequency_penalty", params.frequency_penalty},
          {"seed", params.seed},
          {"stop", params.stop},
          {"logit_bias", PackBiases(params.logit_bias)},
          {"min_tokens", params.min_tokens},
          {"ignore_eos", params.ignore_eos},
          {"draft_num_predict", params.draft_num_predict}};
}

Json Pack(const OutputFormat& format) {
  return {{"kind", static_cast<int32_t>(format.kind)}, {"text", format.text}, {"field", format.field}};
}

Json Pack(const Request& request) {
  Json packed = {{"prompt", Pack(request.prompt)},
                 {"params", Pack(request.params)},
                 {"refuse_overflow", request.overflow == Overflow::kRefuse},
                 {"tenant", request.client.tenant},
                 {"cache_salt", request.client.cache_salt},
                 {"weight", request.client.weight},
                 {"shift", request.shift},
                 {"logprobs", request.logprobs},
                 {"top_logprobs", request.top_logprobs},
                 {"think", static_cast<int32_t>(request.think)},
                 {"think_optional", request.think_optional},
                 {"tool_choice", static_cast<int32_t>(request.tool_choice)},
                 {"forced_tool", request.forced_tool},
                 {"single_tool_call", request.single_tool_call},
                 {"model_name", request.model_name},
                 {"go_template", request.go_template},
                 {"return_context", request.return_context},
                 {"prompt_only", request.prompt_only},
                 {"return_prompt_text", request.return_prompt_text},
                 {"delta_per_token", request.delta_per_token}};
  if (request.format) packed["format"] = Pack(*request.format);
  return packed;
}

// Message members that are left out when empty.
Message UnpackMessage(const Json& value, const std::string& path, FirstError& error) {
  Message message;
  Fields required = PayloadFields(value, error, path);
  required.Get("role", message.role);
  required.Get("content", message.content);
  Fields optional(value, path, error);
  optional.Get("thinking", message.thinking);
  optional.Get("tool_name", message.tool_name);
  optional.Get("tool_call_id", message.tool_call_id);
  message.tool_calls = UnpackToolCalls(optional);
  return message;
}

std::vector<Message> GetMessages(Fields& fields) {
  std::vector<Message> messages;
  const Json* list = fields.FindArray("messages");
  if (list == nullptr) return messages;
  messages.reserve(list->size());
  for (const Json& value : *list) {
    messages.push_back(UnpackMessage(value, fields.PathOf("messages[]"), fields.error()));
    if (!fields.ok()) break;
  }
  return messages;
}

std::vector<Tool> UnpackTools(Fields& fields) {
  std::vector<Tool> tools;
  const Json* list = fields.FindArray("tools");
  for (size_t i = 0; list != nullptr && i < list->size() && fields.ok(); ++i) {
    Fields packed = PayloadFields((*list)[i], fields.error(), fields.PathOf("tools[]"));
    Tool& tool = tools.emplace_back();
    packed.Get("name", tool.name);
    packed.Get("parameters", tool.parameters_json);
    packed.Get("strict", tool.strict);
    packed.Get("definition", tool.definition_json);
  }
  return tools;
}

Prompt GetPrompt(Fields& request) {
  const Json* value = request.FindObject("prompt");
  if (value == nullptr) return {};
  Fields fields = PayloadFields(*value, request.error(), request.PathOf("prompt"));
  int32_t kind = 0;
  fields.Get("kind", kind, kChat, kFim);
  if (kind == kEmbed) {
    EmbedPrompt prompt;
    fields.Get("text", prompt.text);
    prompt.tokens = GetTokens(fields, "tokens");
    fields.Get("dimensions", prompt.dimensions, 0);
    fields.Get("normalize", prompt.normalize);
    return prompt;
  }
  if (kind == kRaw) {
    RawPrompt prompt;
    fields.Get("text", prompt.text);
    fields.Get("add_special", prompt.add_special);
    fields.Get("parse_special", prompt.parse_special);
    return prompt;
  }
  if (kind == kTokens) return TokenPrompt{GetTokens(fields, "tokens")};
  if (kind == kFim) {
    FimPrompt prompt;
    fields.Get("prefix", prompt.prefix);
    fields.Get("suffix", prompt.suffix);
    return prompt;
  }
  if (kind == kContinued) {
    ContinuedPrompt prompt;
    prompt.context = GetTokens(fields, "context");
    prompt.messages = GetMessages(fields);
    return prompt;
  }
  ChatPrompt prompt;
  prompt.messages = GetMessages(fields);
  prompt.tools = UnpackTools(fields);
  return prompt;
}

std::vector<LogitBias> GetBiases(Fields& params) {
  constexpr std::string_view kName = "logit_bias";
  std::vector<LogitBias> biases;
  const Json* list = params.FindArray(kName);
  if (list == nullptr) return biases;
  for (const Json& pair : *list) {
    const bool two = pair.is_array() && pair.size() == 2 && pair[1].is_number();
    const auto token = two ? AsInteger(pair[0]) : std::nullopt;
    const double bias = two ? pair[1].get<double>() : 0;
    if (!token || *token < 0 || *token > std::numeric_limits<TokenId>::max() ||
        !(std::abs(bias) <= double{kLogitBiasMax})) {
      params.Reject(kName, "must be an array of pairs of a token and its bias");
      break;
    }
    biases.push_back({static_cast<TokenId>(*token), static_cast<float>(bias)});
  }
  return biases;
}

GenerationParams GetParams(Fields& request) {
  GenerationParams params;
  const Json* value = request.FindObject("params");
  if (value == nullptr) return params;
  Fields fields = PayloadFields(*value, request.error(), request.PathOf("params"));
  fields.Get("num_ctx", params.num_ctx, 0);
  fields.Get("num_predict", params.num_predict);
  fields.Get("num_keep", params.num_keep, -1);
  fields.Get("temperature", params.temperature);
  fields.Get("top_k", params.top_k);
  fields.Get("top_p", params.top_p);
  fields.Get("min_p", params.min_p);
  fields.Get("typical_p", params.typical_p);
  fields.Get("repeat_last_n", params.repeat_last_n, -1);
  fields.Get("repeat_penalty", params.repeat_penalty);
  fields.Get("presence_penalty", params.presence_penalty);
  fields.Get("frequency_penalty", params.frequency_penalty);
  fields.Get("seed", params.seed);
  if (const Json* stop = fields.FindArray("stop")) {
    for (const Json& text : *stop) {
      if (!text.is_string()) {
        fields.Reject("stop", "must be an array of strings");
        break;
      }
      params.stop.push_back(text.get_ref<const std::string&>());
    }
  }
  params.logit_bias = GetBiases(fields);
  fields.Get("min_tokens", params.min_tokens, 0);
  fields.Get("ignore_eos", params.ignore_eos);
  fields.Get("draft_num_predict", params.draft_num_predict);
  return params;
}

// `request`: fields that may be absent.
std::optional<OutputFormat> GetOutputFormat(Fields request) {
  const Json* value = request.FindObject("format");
  if (value == nullptr) return std::nullopt;
  Fields fields = PayloadFields(*value, request.error(), request.PathOf("format"));
  OutputFormat format;
  int32_t kind = 0;
  fields.Get("kind", kind, 0, static_cast<int32_t>(OutputFormat::Kind::kChoice));
  format.kind = static_cast<OutputFormat::Kind>(kind);
  fields.Get("text", format.text);
  fields.Get("field", format.field);
  return format;
}

Request GetRequest(Fields& submit) {
  Request request;
  const Json* value = submit.FindObject("request");
  if (value == nullptr) return request;
  Fields fields = PayloadFields(*value, submit.error(), submit.PathOf("request"));
  request.prompt = GetPrompt(fields);
  request.params = GetParams(fields);
  bool refuse = false;
  fields.Get("refuse_overflow", refuse);
  request.overflow = refuse ? Overflow::kRefuse : Overflow::kTruncate;
  fields.Get("tenant", request.client.tenant);
  fields.Get("cache_salt", request.client.cache_salt);
  fields.Get("weight", request.client.weight, 1, kWeightMax);
  fields.Get("shift", request.shift);
  fields.Get("logprobs", request.logprobs);
  fields.Get("top_logprobs", request.top_logprobs, 0, kTopLogprobsMax);
  int32_t think = 0;
  fields.Get("think", think, 0, static_cast<int32_t>(Think::kMax));
  request.think = static_cast<Think>(think);
  fields.Get("think_optional", request.think_optional);
  int32_t choice = 0;
  fields.Get("tool_choice", choice, 0, static_cast<int32_t>(ToolChoice::kRequired));
  request.tool_choice = static_cast<ToolChoice>(choice);
  fields.Get("forced_tool", request.forced_tool);
  fields.Get("single_tool_call", request.single_tool_call);
  fields.Get("model_name", request.model_name);
  fields.Get("go_template", request.go_template);
  fields.Get("return_context", request.return_context);
  fields.Get("prompt_only", request.prompt_only);
  fields.Get("return_prompt_text", request.return_prompt_text);
  fields.Get("delta_per_token", request.delta_per_token);
  request.format = GetOutputFormat(Fields(*value, submit.PathOf("request"), submit.error()));
  return request;
}

// [{name, fd}]
Json Pack(const std::vector<ModelFile>& files) {
  Json packed = Json::array();
  for (const ModelFile& file : files) packed.push_back(Json({{"name", file.name}, {"fd", file.fd}}));
  return packed;
}

// `taken`: the descriptors of this message so far.
std::vector<ModelFile> GetFiles(Fields& fields, std::string_view name, std::set<int32_t>& taken) {
  std::vector<ModelFile> files;
  std::set<std::string_view> names;
  const Json* list = fields.FindArray(name);
  if (list == nullptr) return files;
  if (list->size() > kModelFilesMax) {
    fields.Reject(name, "has too many files");
    return files;
  }
  files.reserve(list->size());
  for (const Json& value : *list) {
    Fields file = PayloadFields(value, fields.error(), fields.PathOf(name) + "[]");
    ModelFile& read = files.emplace_back();
    file.Get("name", read.name);
    file.Get("fd", read.fd, kFirstModelFd, kLastModelFd);
    if (!file.ok()) break;
    if (!names.insert(read.name).second) file.Reject("name", "is duplicated");
    if (!taken.insert(read.fd).second) file.Reject("fd", "is duplicated");
  }
  return files;
}

std::string EncodeOne(const LoadModel& m) {
  return MakeFrame(kLoadModel, {{"path", m.path},
                                {"files", Pack(m.files)},
                                {"num_ctx", m.num_ctx},
                                {"threads", m.threads},
                                {"cache_bytes", m.cache_bytes},
                                {"reuse_prefixes", m.reuse_prefixes},
                                {"go_template", m.go_template},
                                {"draft_path", m.draft_path},
                                {"draft_files", Pack(m.draft_files)}});
}
std::string EncodeOne(const LoadApproved& m) {
  return MakeFrame(kLoadApproved, {{"cache_bytes", m.cache_bytes}});
}
std::string EncodeOne(const InspectModel& m) {
  return MakeFrame(
      kInspectModel,
      {{"path", m.path}, {"files", Pack(m.files)}, {"verbose", m.verbose}, {"go_template", m.go_template}});
}
std::string EncodeOne(const ConvertModel& m) {
  return MakeFrame(kConvertModel, {{"from", m.from},
                                   {"files", Pack(m.files)},
                                   {"to", m.to},
                                   {"quantization", m.quantization},
                                   {"threads", m.threads}});
}
std::string EncodeOne(const Submit& m) {
  return MakeFrame(kSubmit, {{"id", std::to_underlying(m.id)},
                             {"request", Pack(m.request)},
                             {"resume_tokens", PackTokens(m.resume.tokens)},
                             {"resume_deltas", m.resume.deltas},
                             {"resume_credit", m.resume.credit}});
}
std::string EncodeOne(const Credit& m) {
  return MakeFrame(kCredit, {{"id", std::to_underlying(m.id)}, {"deltas", m.deltas}});
}
std::string EncodeOne(const Cancel& m) { return MakeFrame(kCancel, {{"id", std::to_underlying(m.id)}}); }
std::string EncodeOne(const Shutdown&) { return MakeFrame(kShutdown, Json::object()); }

ToRunner DecodeFields(uint16_t type, Fields& fields) {
  std::set<int32_t> fds;
  switch (type) {
    case kLoadModel: {
      LoadModel m;
      fields.Get("path", m.path);
      m.files = GetFiles(fields, "files", fds);
      fields.Get("num_ctx", m.num_ctx, 0);
      fields.Get("threads", m.threads, 0, kThreadsMax);
      fields.Get("cache_bytes", m.cache_bytes, 0);
      fields.Get("reuse_prefixes", m.reuse_prefixes);
      fields.Get("go_template", m.go_template);
      fields.Get("draft_path", m.draft_path);
      m.draft_files = GetFiles(fields, "draft_files", fds);
      return m;
    }
    case kLoadApproved: {
      LoadApproved m;
      fields.Get("cache_bytes", m.cache_bytes, 0);
      return m;
    }
    case kInspectModel: {
      InspectModel m;
      fields.Get("path", m.path);
      m.files = GetFiles(fields, "files", fds);
      fields.Get("verbose", m.verbose);
      fields.Get("go_template", m.go_template);
      return m;
    }
    case kConvertModel: {
      ConvertModel m;
      fields.Get("from", m.from);
      m.files = GetFiles(fields, "files", fds);
      fields.Get("to", m.to);
      fields.Get("quantization", m.quantization);
      fields.Get("threads", m.threads, 0, kThreadsMax);
      return m;
    }
    case kSubmit: {
      const RequestId id = GetRequestId(fields);
      Submit m{id, GetRequest(fields), {}};
      m.resume.tokens = GetTokens(fields, "resume_tokens");
      fields.Get("resume_deltas", m.resume.deltas, 0);
      fields.Get("resume_credit", m.resume.credit, 0, kInitialCredit);
      return m;
    }
    case kCredit: {
      Credit m{GetRequestId(fields), 0};
      fields.Get("deltas", m.deltas, 0);
      return m;
    }
    case kCancel:
      return Cancel{GetRequestId(fields)};
    default:
      return Shutdown{};
  }
}

}  // namespace

std::string Encode(const ToRunner& message) {
  return std::visit([](const auto& m) { return EncodeOne(m); }, message);
}

Result<ToRunner> DecodeToRunner(const FrameReader::Frame& frame) {
  if (frame.type < kLoadModel || frame.type > kLoadApproved) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("unknown message type {} for a runner", frame.type));
  }
  const auto payload = ReadPayload(frame);
  if (!payload) return std::unexpected(payload.error());
  FirstError error;
  Fields fields = PayloadFields(*payload, error);
  ToRunner message = DecodeFields(frame.type, fields);
  if (error) return std::unexpected(std::move(*error));
  return message;
}

}  // namespace quire::api::ipc
