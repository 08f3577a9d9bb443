#include "api/base/request.h"

#include <algorithm>
#include <utility>

namespace quire::api {
namespace {

constexpr int32_t kContextFloor = 4;  // tokens

// Calls f(member of a, member of b) for every option.
template <class A, class B, class F>
void ForEachOption(A& a, B& b, F f) {
  f(a.num_ctx, b.num_ctx);
  f(a.num_predict, b.num_predict);
  f(a.num_keep, b.num_keep);
  f(a.top_k, b.top_k);
  f(a.repeat_last_n, b.repeat_last_n);
  f(a.temperature, b.temperature);
  f(a.top_p, b.top_p);
  f(a.min_p, b.min_p);
  f(a.typical_p, b.typical_p);
  f(a.repeat_penalty, b.repeat_penalty);
  f(a.presence_penalty, b.presence_penalty);
  f(a.frequency_penalty, b.frequency_penalty);
  f(a.seed, b.seed);
  f(a.stop, b.stop);
  f(a.logit_bias, b.logit_bias);
  f(a.min_tokens, b.min_tokens);
  f(a.ignore_eos, b.ignore_eos);
  f(a.draft_num_predict, b.draft_num_predict);
}

}  // namespace

Options Overlay(Options base, const Options& top) {
  ForEachOption(base, top, [](auto& below, const auto& above) {
    if (above) below = above;
  });
  return base;
}

GenerationParams Resolve(const Options& options) {
  GenerationParams params;
  ForEachOption(params, options, [](auto& param, const auto& option) {
    if (option) param = *option;
  });
  params.num_ctx = params.num_ctx <= 0 ? 0 : std::max(params.num_ctx, kContextFloor);
  params.num_keep = std::max(params.num_keep, -1);
  params.repeat_last_n = std::max(params.repeat_last_n, -1);
  if (params.repeat_penalty <= 0) params.repeat_penalty = 1;
  std::erase(params.stop, std::string());
  return params;
}

}  // namespace quire::api
