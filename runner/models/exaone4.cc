#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// The period of the layers, the last of which has no window.
int32_t ReadExaonePeriod(ConfigReader& read) {
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
  return period;
}

bool SlidesInPeriod(int32_t layer, int32_t every) { return every > 0 && (layer + 1) % every != 0; }

// In a model with a window, layers without one have no positions; also if no layer has one.
void ReadExaoneLayers(ConfigReader& read, DecoderForm* form) {
  ReadSlidingRope(read, FormQuery().rope, form);
  form->qk_norm = QkNorm::kHeads;
  const bool hybrid =
      (!read.gguf() && !read.SaysNull("sliding_window")) ||
      std::ranges::any_of(form->layers, [](const LayerForm& layer) { return layer.window > 0; });
  for (LayerForm& layer : form->layers) {
    if (hybrid && layer.window == 0) layer.rope = LayerForm::kNoRope;
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadExaone4(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t period = ReadExaonePeriod(read);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 2048, .norm_eps = 1e-5F},
                                            .slides = SlidesInPeriod,
                                            .period = period,
                                            .given_window = read.gguf() ? 0 : 4096});
  form.norms = NormPlaces::kAfter;
  ReadExaoneLayers(read, &form);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadExaoneMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t period = ReadExaonePeriod(read);
  DecoderForm form =
      ReadMixtureForm(read, {.given = {.context = 2048, .norm_eps = 1e-5F}, .rope = {.default_theta = 10000}},
                      {.score = MixtureConfig::Score::kSigmoid,
                       .scale = 2.5,
                       .first_dense = 1,
                       .shared = 1,
                       .as_stored = true});
  form.SetWindows(ReadWindows(read, form.decoder.layers, SlidesInPeriod, period, read.gguf() ? 0 : 4096));
  ReadExaoneLayers(read, &form);
  form.mixture.names.choice_bias = {"mlp.e_score_correction_bias", "exp_probs_b.bias"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
