#include "runner/engine/prompt/model_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "runner/work/log_line.h"

namespace quire::runner::engine {

weights::GenerationDefaults LoadModelDefaults(const LoadedModel& model, bool used) {
  for (const std::string& repair : model.files->repairs()) LogLine("read differently: " + repair);
  for (const std::string& note : model.prompt_notes) LogLine("read differently: " + note);
  for (const std::string& shape : model.prompt_template->unserved())
    LogLine("chat template: refuses or drops " + shape);
  if (!used) return {};
  weights::GenerationDefaults defaults =
      weights::ReadGenerationDefaults(*model.files, model.tokenizer->vocab_size());
  for (const std::string& note : defaults.notes) LogLine("read differently: " + note);
  std::vector<std::string> parts;
  const auto options = api::ReadJson(api::DumpOptions(defaults.options)).value_or(api::Json::object());
  for (const auto& [name, value] : options.items()) parts.push_back(fmt::format("{} {}", name, value.dump()));
  const auto add = [&parts](size_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(defaults.banned.size(), "banned tokens");
  add(defaults.banned_first.size(), "tokens banned as the first");
  add(defaults.stop.size(), "stop strings");
  if (!parts.empty())
    LogLine(fmt::format("default sampling, from {}: {}", defaults.source, fmt::join(parts, ", ")));
  return defaults;
}

void ApplyModelDefaults(const weights::GenerationDefaults& defaults, api::Request& request,
                        BuiltPrompt& prompt) {
  api::GenerationParams& params = request.params;
  const api::Options added = api::Without(defaults.options, request.specified);
  api::Apply(added, params);
  prompt.sampling = api::DumpOptions(added);
  prompt.banned_first = defaults.banned_first;
  params.stop.insert(params.stop.end(), defaults.stop.begin(), defaults.stop.end());
  const size_t own = params.logit_bias.size();
  for (const api::TokenId id : defaults.banned) {
    const auto end = params.logit_bias.begin() + static_cast<std::ptrdiff_t>(own);
    const bool biased = std::find_if(params.logit_bias.begin(), end,
                                     [id](const api::LogitBias& bias) { return bias.token == id; }) != end;
    if (!biased) params.logit_bias.push_back({id, -api::kLogitBiasMax});
  }
}

}  // namespace quire::runner::engine
