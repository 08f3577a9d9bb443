#include "api/json/timings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace quire::api {
namespace {

// Clients divide by them, so no time is 0.
void Put(Json& out, const std::string& name, int64_t tokens, int64_t nanoseconds) {
  const double milliseconds = static_cast<double>(std::max<int64_t>(nanoseconds, 1)) / 1e6;
  const auto count = static_cast<double>(tokens);
  out[name + "_n"] = tokens;
  out[name + "_ms"] = milliseconds;
  out[name + "_per_token_ms"] = tokens > 0 ? milliseconds / count : 0.0;
  out[name + "_per_second"] = count * 1e3 / milliseconds;
}

}  // namespace

Json EncodeTimings(const Usage& usage) {
  Json out = Json::object();
  out["cache_n"] = usage.cached_tokens;
  Put(out, "prompt", usage.prompt_tokens - usage.cached_tokens, usage.prompt_ns);
  Put(out, "predicted", usage.output_tokens, usage.output_ns);
  if (usage.draft.drafted > 0) {
    out["draft_n"] = usage.draft.drafted;
    out["draft_n_accepted"] = usage.draft.accepted();
  }
  return out;
}

void AnswerClock::OnReady(const PromptReady& ready, std::chrono::nanoseconds total) {
  so_far_.prompt_tokens = ready.prompt_tokens;
  so_far_.cached_tokens = ready.cached_tokens;
  ready_at_ = total;
}

void AnswerClock::OnDelta(const TextDelta& delta, std::chrono::nanoseconds total) {
  if (!delta.prompt.empty()) return;  // the answer has not begun
  if (so_far_.output_tokens == 0) first_at_ = total;
  so_far_.output_tokens += delta.tokens;
  so_far_.prompt_ns = (first_at_ - ready_at_).count();
  so_far_.output_ns = (total - first_at_).count();
}

Json AnswerClock::Progress(int32_t computed_tokens, std::chrono::nanoseconds total) const {
  return {{"total", so_far_.prompt_tokens},
          {"cache", so_far_.cached_tokens},
          {"processed", computed_tokens},
          {"time_ms", std::chrono::duration_cast<std::chrono::milliseconds>(total - ready_at_).count()}};
}

Json AnswerClock::Timings() const { return EncodeTimings(so_far_); }

void Add(Usage& sum, const Usage& usage) {
  sum.prompt_tokens += usage.prompt_tokens;
  sum.cached_tokens += usage.cached_tokens;
  sum.output_tokens += usage.output_tokens;
  sum.prompt_ns += usage.prompt_ns;
  sum.output_ns += usage.output_ns;
  sum.draft.drafted += usage.draft.drafted;
  auto& positions = sum.draft.accepted_by_position;
  const auto& more = usage.draft.accepted_by_position;
  positions.resize(std::max(positions.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) positions[i] += more[i];
}

}  // namespace quire::api
