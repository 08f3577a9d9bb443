#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

struct YarnSpelling {
  std::string_view other;
  std::string_view ours;
};

constexpr YarnSpelling kYarnSpellings[] = {
    {"rope.scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
    {"rope.scaling.beta_slow", "rope.scaling.yarn_beta_slow"},
    {"rope.scaling.extrapolation_factor", "rope.scaling.yarn_ext_factor"},
    {"rope.scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier"},
};

}  // namespace

api::Result<GgufEdits> DetectRopeSpelling(const GgufView& view) {
  GgufEdits edits;
  const std::string type = view.Key("rope.scaling.type"), factor = view.Key("rope.scaling.factor");
  const std::string old = view.Key("rope.scale_linear");
  const std::string_view stated_type = view.Text(type);
  const auto stated = view.Number(factor);
  if (const auto linear = view.Number(old)) {
    if (stated && *stated != *linear) {
      return Contradiction(old, fmt::format("is {}, but {} is {}", *linear, factor, *stated));
    }
    if (!stated_type.empty() && stated_type != "linear") {
      return Contradiction(old, fmt::format("is set, but {} is not linear", type));
    }
    edits.Alias(view, old, factor);
    if (stated_type.empty()) edits.Set(type, "linear", "read from " + old);
  } else if (view.Has(type) && view.Find(type)->is_string() && stated_type.empty()) {
    if (stated && *stated != 0 && *stated != 1) {
      return Contradiction(type, fmt::format("is empty, but {} is {}", factor, *stated));
    }
    edits.Set(type, "none", "empty");
  } else if (stated && *stated > 0 && !view.Has(type)) {
    edits.Set(type, "linear", fmt::format("absent beside {}, which llama.cpp takes for linear", factor));
  }
  for (const auto& [other, ours] : kYarnSpellings) edits.Alias(view, view.Key(other), view.Key(ours));
  return edits;
}

}  // namespace quire::runner::weights
