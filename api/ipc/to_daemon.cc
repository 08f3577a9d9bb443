#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "api/ipc/delta.h"
#include "api/ipc/messages.h"
#include "api/ipc/payload.h"

namespace quire::api::ipc {
namespace {

// Apart from the daemon's types, so that a frame sent the wrong way is refused.
enum ToDaemonType : uint16_t {
  kHello = 101,
  kLoadProgress,
  kLoaded,
  kLoadFailed,
  kInspected,
  kRequestEvent,
  kHeartbeat,
  kConverted,
  kMemoryEstimate
};
enum EventKind : int32_t { kPromptReady, kTextDelta, kFinished, kFailed };

Json Pack(const Error& error) {
  return {{"code", static_cast<int32_t>(error.code)}, {"message", error.message}, {"field", error.field}};
}

Error GetError(Fields& fields, std::string_view name) {
  Error error;
  const Json* value = fields.FindObject(name);
  if (value == nullptr) return error;
  Fields inner = PayloadFields(*value, fields.error(), fields.PathOf(name));
  int32_t code = 0;
  inner.Get("code", code, 0, static_cast<int32_t>(ErrorCode::kUnavailable));
  error.code = static_cast<ErrorCode>(code);
  inner.Get("message", error.message);
  inner.Get("field", error.field);
  return error;
}

Json Pack(const ModelInfo& info) {
  return {{"architecture", info.architecture}, {"context_length", info.context_length},
          {"num_ctx", info.num_ctx},           {"parameters", info.parameters},
          {"weight_bytes", info.weight_bytes}, {"cache_bytes", info.cache_bytes},
          {"supports_fim", info.supports_fim}, {"draft_architecture", info.draft_architecture}};
}

ModelInfo GetModelInfo(Fields& fields) {
  ModelInfo info;
  const Json* value = fields.FindObject("info");
  if (value == nullptr) return info;
  Fields inner = PayloadFields(*value, fields.error(), fields.PathOf("info"));
  inner.Get("architecture", info.architecture);
  inner.Get("context_length", info.context_length, 0);
  inner.Get("num_ctx", info.num_ctx, 0);
  inner.Get("parameters", info.parameters, 0);
  inner.Get("weight_bytes", info.weight_bytes, 0);
  inner.Get("cache_bytes", info.cache_bytes, 0);
  inner.Get("supports_fim", info.supports_fim);
  inner.Get("draft_architecture", info.draft_architecture);
  return info;
}

Json Pack(const TokenCandidate& candidate) {
  return {{"bytes", PackBytes(candidate.bytes)}, {"id", candidate.id}, {"logprob", candidate.logprob}};
}

TokenCandidate UnpackCandidate(const Json& value, std::string path, FirstError& error) {
  Fields fields = PayloadFields(value, error, std::move(path));
  TokenCandidate candidate;
  candidate.bytes = GetBytes(fields, "bytes");
  fields.Get("id", candidate.id, 0);
  // A token the model gives no chance at all has minus infinity, which Get() would refuse.
  const Json* logprob = fields.Find("logprob");
  if (logprob != nullptr && logprob->is_number_float() && std::isinf(logprob->get<double>())) {
    candidate.logprob = static_cast<float>(logprob->get<double>());
    if (candidate.logprob > 0) fields.Reject("logprob", "must not be positive infinity");
  } else {
    fields.Get("logprob", candidate.logprob);
  }
  return candidate;
}

Json PackLogprobs(const std::vector<TokenLogprob>& logprobs) {
  Json packed = Json::array();
  for (const TokenLogprob& token : logprobs) {
    Json top = Json::array();
    for (const TokenCandidate& candidate : token.top) top.push_back(Pack(candidate));
    Json entry = {{"chosen", Pack(token.chosen)}, {"top", std::move(top)}};
    packed.push_back(std::move(entry));
  }
  return packed;
}

std::vector<TokenLogprob> GetLogprobs(Fields& fields) {
  std::vector<TokenLogprob> logprobs;
  const Json* list = fields.FindArray("logprobs");
  if (list == nullptr) return logprobs;
  const std::string path = fields.PathOf("logprobs[]");
  for (const Json& value : *list) {
    Fields token = PayloadFields(value, fields.error(), path);
    TokenLogprob& out = logprobs.emplace_back();
    if (const Json* chosen = token.FindObject("chosen")) {
      out.chosen = UnpackCandidate(*chosen, token.PathOf("chosen"), fields.error());
    }
    if (const Json* top = token.FindArray("top")) {
      for (const Json& candidate : *top) {
        out.top.push_back(UnpackCandidate(candidate, token.PathOf("top[]"), fields.error()));
      }
    }
    if (!fields.ok()) break;
  }
  return logprobs;
}

Json Pack(const DraftUsage& draft) {
  return {{"rounds", draft.rounds},
          {"drafted", draft.drafted},
          {"accepted", PackTokens(draft.accepted_by_position)},
          {"rollback_ns", draft.rollback_ns}};
}

DraftUsage GetDraftUsage(const Json& value, Fields& usage) {
  DraftUsage draft;
  Fields inner = PayloadFields(value, usage.error(), usage.PathOf("draft"));
  inner.Get("rounds", draft.rounds, 0);
  inner.Get("drafted", draft.drafted, 0);
  draft.accepted_by_position = GetTokens(inner, "accepted");
  inner.Get("rollback_ns", draft.rollback_ns, 0);
  return draft;
}

Json Pack(const Usage& usage) {
  Json packed = {{"prompt_tokens", usage.prompt_tokens}, {"cached_tokens", usage.cached_tokens},
                 {"output_tokens", usage.output_tokens}, {"queue_ns", usage.queue_ns},
                 {"prompt_ns", usage.prompt_ns},         {"output_ns", usage.output_ns}};
  if (usage.draft.rounds > 0) packed["draft"] = Pack(usage.draft);
  return packed;
}

Usage GetUsage(Fields& fields) {
  Usage usage;
  const Json* value = fields.FindObject("usage");
  if (value == nullptr) return usage;
  Fields inner = PayloadFields(*value, fields.error(), fields.PathOf("usage"));
  inner.Get("prompt_tokens", usage.prompt_tokens, 0);
  inner.Get("cached_tokens", usage.cached_tokens, 0, usage.prompt_tokens);
  inner.Get("output_tokens", usage.output_tokens, 0);
  inner.Get("queue_ns", usage.queue_ns, 0);
  inner.Get("prompt_ns", usage.prompt_ns, 0);
  inner.Get("output_ns", usage.output_ns, 0);
  Fields optional(*value, fields.PathOf("usage"), fields.error());
  if (const Json* draft = optional.FindObject("draft")) usage.draft = GetDraftUsage(*draft, optional);
  return usage;
}

Json PackEvent(const PromptReady& e) {
  return {{"kind", static_cast<int32_t>(kPromptReady)},
          {"prompt_tokens", e.prompt_tokens},
          {"cached_tokens", e.cached_tokens},
          {"miss", e.miss}};
}
Json PackEvent(const TextDelta& e) {
  Json packed = {{"kind", static_cast<int32_t>(kTextDelta)},
                 {"text", e.text},
                 {"logprobs", PackLogprobs(e.logprobs)},
                 {"tokens", e.tokens}};
  if (!e.thinking.empty()) packed["thinking"] = e.thinking;
  if (!e.tool_calls.empty()) packed["tool_calls"] = PackToolCalls(e.tool_calls);
  if (!e.token_ids.empty()) packed["token_ids"] = PackTokens(e.token_ids);
  return packed;
}
Json PackEvent(const Finished& e) {
  return {{"kind", static_cast<int32_t>(kFinished)},
          {"length", e.reason == FinishReason::kLength},
          {"stop_string", e.stop_string},
          {"usage", Pack(e.usage)},
          {"prompt_dropped", e.prompt_dropped},
          {"context", PackTokens(e.context)},
          {"embedding", PackFloats(e.embedding)}};
}
Json PackEvent(const Failed& e) {
  return {{"kind", static_cast<int32_t>(kFailed)}, {"error", Pack(e.error)}};
}

Event GetEvent(Fields& message) {
  const Json* value = message.FindObject("event");
  if (value == nullptr) return {};
  Fields fields = PayloadFields(*value, message.error(), message.PathOf("event"));
  int32_t kind = 0;
  fields.Get("kind", kind, kPromptReady, kFailed);
  switch (kind) {
    case kTextDelta: {
      TextDelta e;
      fields.Get("text", e.text);
      e.logprobs = GetLogprobs(fields);
      fields.Get("tokens", e.tokens, 0);
      Fields optional(*value, message.PathOf("event"), message.error());
      optional.Get("thinking", e.thinking);
      e.tool_calls = UnpackToolCalls(optional);
      if (optional.Find("token_ids") != nullptr) {
        const std::vector<TokenId> ids = GetTokens(optional, "token_ids");
        e.token_ids.assign(ids.begin(), ids.end());
      }
      return e;
    }
    case kFinished: {
      Finished e;
      bool length = false;
      fields.Get("length", length);
      e.reason = length ? FinishReason::kLength : FinishReason::kStop;
      fields.Get("stop_string", e.stop_string);
      e.usage = GetUsage(fields);
      fields.Get("prompt_dropped", e.prompt_dropped, 0);
      e.context = GetTokens(fields, "context");
      e.embedding = GetFloats(fields, "embedding");
      return e;
    }
    case kFailed:
      return Failed{GetError(fields, "error")};
    default: {
      PromptReady e;
      fields.Get("prompt_tokens", e.prompt_tokens, 0);
      fields.Get("cached_tokens", e.cached_tokens, 0, e.prompt_tokens);
      fields.Get("miss", e.miss);
      return e;
    }
  }
}

std::string EncodeOne(const Hello& m) { return MakeFrame(kHello, {{"version", m.version}, {"pid", m.pid}}); }
std::string EncodeOne(const LoadProgress& m) {
  return MakeFrame(kLoadProgress, {{"fraction", m.fraction}, {"stage", m.stage}});
}
std::string EncodeOne(const Loaded& m) {
  return MakeFrame(kLoaded, {{"info", Pack(m.info)}, {"load_ns", m.load_ns}});
}
std::string EncodeOne(const MemoryEstimate& m) {
  return MakeFrame(kMemoryEstimate, {{"weight_bytes", m.weight_bytes},
                                     {"scratch_bytes", m.scratch_bytes},
                                     {"cache_bytes", m.cache_bytes},
                                     {"cache_min_bytes", m.cache_min_bytes}});
}
std::string EncodeOne(const LoadFailed& m) { return MakeFrame(kLoadFailed, {{"error", Pack(m.error)}}); }
std::string EncodeOne(const Inspected& m) {
  Json payload = {{"model_info", m.model_info_json},   {"tensors", m.tensors_json},
                  {"chat_template", m.chat_template},  {"quantization", m.quantization},
                  {"parameters", m.parameters},        {"capabilities", m.capabilities},
                  {"template_error", m.template_error}};
  if (m.error) payload["error"] = Pack(*m.error);
  return MakeFrame(kInspected, payload);
}
std::string EncodeOne(const Converted& m) {
  Json payload = Json::object();
  if (m.error) payload["error"] = Pack(*m.error);
  return MakeFrame(kConverted, payload);
}
std::string EncodeOne(const RequestEvent& m) {
  return MakeFrame(kRequestEvent,
                   {{"id", std::to_underlying(m.id)},
                    {"event", std::visit([](const auto& event) { return PackEvent(event); }, m.event)}});
}
std::string EncodeOne(const Heartbeat& m) {
  return MakeFrame(kHeartbeat, {{"progress", m.progress},
                                {"steps", m.steps},
                                {"running", m.running},
                                {"waiting", m.waiting},
                                {"cache_bytes_used", m.cache_bytes_used},
                                {"prefix_snapshots", m.prefix_snapshots},
                                {"prefix_bytes", m.prefix_bytes},
                                {"prefix_evictions", m.prefix_evictions}});
}

// MessagePack, written as it goes out.
void PutUnsigned(uint64_t value, std::string& to) {
  if (value < 0x80) {
    to += static_cast<char>(value);
    return;
  }
  to += '\xcf';
  for (int shift = 56; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift & 0xff);
}
void PutString(std::string_view text, std::string& to) {
  if (text.size() < 32) {
    to += static_cast<char>(0xa0 | text.size());
  } else {
    to += '\xdb';
    for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(text.size() >> shift & 0xff);
  }
  to += text;
}
// As PackTokens.
void PutTokens(std::span<const TokenId> tokens, std::string& to) {
  const size_t bytes = tokens.size() * sizeof(TokenId);
  to += '\xc6';
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(bytes >> shift & 0xff);
  for (const TokenId token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      to += static_cast<char>(static_cast<uint32_t>(token) >> shift & 0xff);
    }
  }
}
void PutMapSize(size_t size, std::string& to) { to += static_cast<char>(0x80 | size); }
constexpr char kEmptyArray = '\x90';

Inspected GetInspected(const Json& payload, Fields& fields) {
  Inspected m;
  fields.Get("model_info", m.model_info_json);
  fields.Get("tensors", m.tensors_json);
  fields.Get("chat_template", m.chat_template);
  fields.Get("quantization", m.quantization);
  fields.Get("parameters", m.parameters, 0);
  fields.Get("template_error", m.template_error);
  if (const Json* list = fields.FindArray("capabilities")) {
    for (const Json& name : *list) {
      if (!name.is_string()) fields.Reject("capabilities", "must be an array of strings");
      if (!fields.ok()) break;
      m.capabilities.push_back(name.get<std::string>());
    }
  }
  Fields optional(payload, "payload", fields.error());
  if (optional.Find("error") != nullptr) m.error = GetError(fields, "error");
  return m;
}

Converted GetConverted(const Json& payload, Fields& fields) {
  Converted m;
  Fields optional(payload, "payload", fields.error());
  if (optional.Find("error") != nullptr) m.error = GetError(fields, "error");
  return m;
}

ToDaemon DecodeFields(uint16_t type, const Json& payload, Fields& fields) {
  switch (type) {
    case kHello: {
      int32_t version = 0;
      Hello m;
      fields.Get("version", version, 0, 65535);
      m.version = static_cast<uint16_t>(version);
      fields.Get("pid", m.pid, 1);
      return m;
    }
    case kLoadProgress: {
      LoadProgress m;
      fields.Get("fraction", m.fraction, 0, 1);
      fields.Get("stage", m.stage);
      return m;
    }
    case kLoaded: {
      Loaded m;
      m.info = GetModelInfo(fields);
      fields.Get("load_ns", m.load_ns, 0);
      return m;
    }
    case kMemoryEstimate: {
      MemoryEstimate m;
      fields.Get("weight_bytes", m.weight_bytes, 0);
      fields.Get("scratch_bytes", m.scratch_bytes, 0);
      fields.Get("cache_bytes", m.cache_bytes, 0);
      fields.Get("cache_min_bytes", m.cache_min_bytes, 0);
      return m;
    }
    case kLoadFailed:
      return LoadFailed{GetError(fields, "error")};
    case kInspected:
      return GetInspected(payload, fields);
    case kConverted:
      return GetConverted(payload, fields);
    case kRequestEvent: {
      const RequestId id = GetRequestId(fields);
      return RequestEvent{id, GetEvent(fields)};
    }
    default: {
      Heartbeat m;
      fields.Get("progress", m.progress);
      fields.Get("steps", m.steps);
      fields.Get("running", m.running, 0);
      fields.Get("waiting", m.waiting, 0);
      fields.Get("cache_bytes_used", m.cache_bytes_used, 0);
      fields.Get("prefix_snapshots", m.prefix_snapshots, 0);
      fields.Get("prefix_bytes", m.prefix_bytes, 0);
      fields.Get("prefix_evictions", m.prefix_evictions);
      return m;
    }
  }
}

}  // namespace

bool AppendDelta(const ToDaemon& message, std::string& frames) {
  const auto* const request = std::get_if<RequestEvent>(&message);
  const auto* const delta = request != nullptr ? std::get_if<TextDelta>(&request->event) : nullptr;
  if (delta == nullptr || !delta->logprobs.empty() || !delta->tool_calls.empty() || delta->tokens < 0) {
    return false;
  }
  const size_t begin = frames.size();
  StartFrame(kRequestEvent, frames);
  PutMapSize(2, frames);
  PutString("id", frames);
  PutUnsigned(std::to_underlying(request->id), frames);
  PutString("event", frames);
  PutMapSize(4U + (delta->thinking.empty() ? 0 : 1) + (delta->token_ids.empty() ? 0 : 1), frames);
  PutString("kind", frames);
  PutUnsigned(kTextDelta, frames);
  PutString("text", frames);
  PutString(delta->text, frames);
  PutString("logprobs", frames);
  frames += kEmptyArray;
  PutString("tokens", frames);
  PutUnsigned(static_cast<uint64_t>(delta->tokens), frames);
  if (!delta->thinking.empty()) {
    PutString("thinking", frames);
    PutString(delta->thinking, frames);
  }
  if (!delta->token_ids.empty()) {
    PutString("token_ids", frames);
    PutTokens(delta->token_ids, frames);
  }
  return EndFrame(begin, frames);
}

std::string Encode(const ToDaemon& message) {
  return std::visit([](const auto& m) { return EncodeOne(m); }, message);
}

Result<ToDaemon> DecodeToDaemon(const FrameReader::Frame& frame) {
  if (frame.type < kHello || frame.type > kMemoryEstimate) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("unknown message type {} for the daemon", frame.type));
  }
  const auto payload = ReadPayload(frame);
  if (!payload) return std::unexpected(payload.error());
  FirstError error;
  Fields fields = PayloadFields(*payload, error);
  ToDaemon message = DecodeFields(frame.type, *payload, fields);
  if (error) return std::unexpected(std::move(*error));
  return message;
}

}  // namespace quire::api::ipc
