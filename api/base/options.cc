#include "api/base/options.h"

#include <algorithm>

namespace quire::api {
namespace {

constexpr int32_t kContextFloor = 4;  // tokens

}  // namespace

Options Overlay(Options base, const Options& top) {
  VisitOptions(
      [](const OptionRow&, auto& below, const auto& above) {
        if (above) below = above;
      },
      base, top);
  return base;
}

GenerationParams Resolve(const Options& options) {
  GenerationParams params;
  Apply(options, params);
  return params;
}

OptionBits Specified(const Options& options) {
  OptionBits bits = 0, bit = 1;
  VisitOptions(
      [&](const OptionRow&, const auto& option) {
        if (option) bits |= bit;
        bit <<= 1U;
      },
      options);
  return bits;
}

Options Without(Options options, OptionBits bits) {
  VisitOptions(
      [&bits](const OptionRow&, auto& option) {
        if ((bits & 1U) != 0) option.reset();
        bits >>= 1U;
      },
      options);
  return options;
}

void Apply(const Options& options, GenerationParams& params) {
  VisitOptions(
      [](const OptionRow&, auto& param, const auto& option) {
        if (option) param = *option;
      },
      params, options);
  params.num_ctx = params.num_ctx <= 0 ? 0 : std::max(params.num_ctx, kContextFloor);
  params.num_keep = std::max(params.num_keep, -1);
  params.repeat_last_n = std::max(params.repeat_last_n, -1);
  if (params.repeat_penalty <= 0) params.repeat_penalty = 1;
  std::erase(params.stop, std::string());
}

}  // namespace quire::api
