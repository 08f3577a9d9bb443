#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadExaone4(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // A text such as "LLLG" spells the period out.
  const auto* spelled = read.Find({"sliding_window_pattern", ""});
  const bool letters = spelled != nullptr && spelled->is_string();
  const std::string pattern = letters ? spelled->get<std::string>() : "";
  const int32_t period = letters ? static_cast<int32_t>(pattern.size())
                                 : read.Small({"sliding_window_pattern", ""}, 0, kMaxLayers, 4);
  if (letters &&
      (pattern.find('G') + 1 != pattern.size() || pattern.find_first_not_of("LG") != std::string::npos)) {
    read.Fail("sliding_window_pattern is neither a number nor a text such as \"LLLG\"");
  }
  DecoderForm form = ReadDecoderForm(
      read, {.given = {.context = 2048, .norm_eps = 1e-5F},
             .slides = [](int32_t layer, int32_t every) { return every > 0 && (layer + 1) % every != 0; },
             .period = period});
  form.norms = NormPlaces::kAfter;
  form.qk_norm = QkNorm::kHeads;
  // Beside layers with a window, those without have no positions.
  const bool hybrid =
      std::ranges::any_of(form.layers, [](const LayerForm& layer) { return layer.window > 0; });
  for (LayerForm& layer : form.layers) {
    if (hybrid && layer.window == 0) layer.rope = LayerForm::kNoRope;
  }
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
