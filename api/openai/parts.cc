#include "api/openai/parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/limits.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/json/sampler_fields.h"

namespace quire::api::openai {
void Refuse(Fields& fields, std::string_view field, std::string message) {
  if (fields.ok()) fields.error() = Error{ErrorCode::kUnsupported, std::move(message), fields.PathOf(field)};
}

void GetSampling(Fields& body, Options& options, std::vector<std::string>& unknown) {
  // Top-level fields override `options`.
  GetOptions(body, options, unknown);
  GetOpenAiOptions(body, options);
  GetSamplers(body, options, unknown);
  body.Get("repetition_penalty", options.repeat_penalty, 0.0F);
  for (const std::string_view name : {"n_predict", "max_new_tokens"}) body.Get(name, options.num_predict, -1);
  body.Get("max_tokens", options.num_predict, -1);
  body.Get("max_completion_tokens", options.num_predict, -1);
}

int32_t GetChoices(Fields& body, size_t body_bytes, CopyBudget& copies) {
  int32_t choices = 1;
  body.Get("n", choices, 1, kChoicesMax);
  copies.Share("n", body_bytes, static_cast<size_t>(choices), kForAllChoices);
  return choices;
}

void CheckBestOf(Fields& body, int32_t choices) {
  int32_t best_of = choices;
  body.Get("best_of", best_of, 1);
  if (best_of != choices) Refuse(body, "best_of", "best_of: must be equal to n");
}

std::string ServerSentEvent(const Json& data) { return "data: " + DumpJson(data) + "\n\n"; }

int64_t Seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace quire::api::openai
