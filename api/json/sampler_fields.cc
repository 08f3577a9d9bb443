#include "api/json/sampler_fields.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace quire::api {
namespace {

constexpr size_t kSamplersMax = 64;
constexpr auto kSamplers =
    std::to_array<std::string_view>({"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "typical_p",
                                     "typical", "top_p", "min_p", "xtc", "temperature", "temp"});

using Names = std::vector<std::string>;

bool Lacks(const Names& names, std::initializer_list<std::string_view> spellings) {
  return std::ranges::none_of(spellings, [&names](std::string_view spelling) {
    return std::ranges::find(names, spelling) != names.end();
  });
}

void SwitchOff(const Names& names, Options& options) {
  if (Lacks(names, {"penalties"})) {
    options.repeat_penalty = 1;
    options.presence_penalty = options.frequency_penalty = 0;
  }
  if (Lacks(names, {"dry"})) options.dry_multiplier = 0;
  if (Lacks(names, {"top_n_sigma"})) options.top_n_sigma = -1;
  if (Lacks(names, {"top_k"})) options.top_k = 0;
  if (Lacks(names, {"typ_p", "typical_p", "typical"})) options.typical_p = 1;
  if (Lacks(names, {"top_p"})) options.top_p = 1;
  if (Lacks(names, {"min_p"})) options.min_p = 0;
  if (Lacks(names, {"xtc"})) options.xtc_probability = 0;
  if (Lacks(names, {"temperature", "temp"}) && options.temperature.value_or(1) > 0) options.temperature = 1;
}

}  // namespace

void GetSamplers(Fields& body, Options& options, std::vector<std::string>& unknown) {
  const Json* value = body.FindArray("samplers");
  if (value == nullptr) return;
  if (value->size() > kSamplersMax) return body.Reject("samplers", "must have at most 64 names");
  Names names;
  names.reserve(value->size());
  for (const Json& name : *value) {
    if (!name.is_string()) return body.Reject("samplers", "must be an array of strings");
    names.push_back(name.get<std::string>());
    if (std::ranges::find(kSamplers, names.back()) == kSamplers.end())
      unknown.push_back("samplers." + names.back());
  }
  SwitchOff(names, options);
}

}  // namespace quire::api
