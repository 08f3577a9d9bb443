#include "api/openai/parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/limits.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"

namespace quire::api::openai {
namespace {

// {"token id": -100 to 100}
void GetLogitBias(Fields& body, Options& options) {
  constexpr std::string_view kName = "logit_bias";
  const Json* value = body.FindObject(kName);
  if (value == nullptr) return;
  if (value->size() > kLogitBiasesMax) {
    return body.Reject(kName, fmt::format("must contain at most {} tokens", kLogitBiasesMax));
  }
  Fields biases(*value, std::string(kName), body.error());
  std::vector<LogitBias> list;
  for (const auto& [key, unused] : value->get_ref<const Json::object_t&>()) {
    LogitBias bias;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), bias.token);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || bias.token < 0) {
      return biases.Reject(key, "is not a token id");
    }
    if (biases.Get(key, bias.bias, -kLogitBiasMax, kLogitBiasMax)) list.push_back(bias);
  }
  options.logit_bias = std::move(list);
}

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

std::string ServerSentEvent(const Json& data) { return "data: " + DumpJson(data) + "\n\n"; }

int64_t Seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace quire::api::openai
