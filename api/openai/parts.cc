#include "api/openai/parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/limits.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"

namespace quire::api::openai {
namespace {

constexpr std::string_view kFingerprint = "fp_quire_" QUIRE_VERSION;

}  // namespace

void Refuse(Fields& fields, std::string_view field, std::string message) {
  if (fields.ok()) fields.error() = Error{ErrorCode::kUnsupported, std::move(message), fields.PathOf(field)};
}

void GetSampling(Fields& body, Options& options, std::vector<std::string>& unknown) {
  // Top-level fields override `options`.
  GetOptions(body, options, unknown);
  GetOpenAiOptions(body, options);
  body.Get("max_tokens", options.num_predict, -1);
  body.Get("max_completion_tokens", options.num_predict, -1);
}

int32_t GetChoices(Fields& body, size_t body_bytes) {
  int32_t choices = 1;
  body.Get("n", choices, 1, kChoicesMax);
  if (body_bytes > kBodyBytesMax / static_cast<size_t>(choices)) {
    body.Reject("n", fmt::format("results in more than {} bytes for {} choices", kBodyBytesMax, choices),
                ErrorCode::kTooLarge);
  }
  return choices;
}

Json Head(const ReplyHead& head, std::string_view object) {
  return {{"id", head.id},
          {"object", object},
          {"created", Seconds(head.created)},
          {"model", head.model},
          {"system_fingerprint", kFingerprint}};
}

Json EncodeUsage(const UsageOfChoices& usage) {
  Json details = Json::object();
  details["cached_tokens"] = usage.cached_tokens;
  Json encoded = {{"prompt_tokens", usage.prompt_tokens},
                  {"completion_tokens", usage.output_tokens},
                  {"total_tokens", usage.prompt_tokens + usage.output_tokens},
                  {"prompt_tokens_details", std::move(details)}};
  if (usage.drafted_tokens > 0) {
    encoded["completion_tokens_details"] = {
        {"accepted_prediction_tokens", usage.accepted_tokens},
        {"rejected_prediction_tokens", usage.drafted_tokens - usage.accepted_tokens}};
  }
  return encoded;
}

std::string ServerSentEvent(const Json& data) { return "data: " + DumpJson(data) + "\n\n"; }

void Count(Usage& so_far, const Event& event) {
  if (const auto* ready = std::get_if<PromptReady>(&event)) {
    so_far.prompt_tokens = ready->prompt_tokens;
    so_far.cached_tokens = ready->cached_tokens;
  } else if (const auto* delta = std::get_if<TextDelta>(&event)) {
    so_far.output_tokens += delta->tokens;
  }
}

void AddUsage(Json& chunk, const ReplyHead& head, const Usage& so_far) {
  if (!head.chunk_per_token) return;
  UsageOfChoices usage;
  usage.Add(so_far, true);
  chunk["usage"] = EncodeUsage(usage);
}

std::string EndOfStream(const ReplyHead& head, std::string_view object, const UsageOfChoices& usage) {
  std::string out;
  if (head.include_usage) {
    Json chunk = Head(head, object);
    chunk["choices"] = Json::array();
    chunk["usage"] = EncodeUsage(usage);
    out = ServerSentEvent(chunk);
  }
  return out + "data: [DONE]\n\n";
}

int64_t Seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace quire::api::openai
