#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

MixtureConfig::Score ReadCohereScore(ConfigReader& read) {
  using Score = MixtureConfig::Score;
  if (read.gguf()) return Score::kSigmoid;  // where a file does not say
  const std::string name = read.Text({"expert_selection_fn", ""}, "softmax");
  if (name != "softmax" && name != "sigmoid") {
    read.Fail("expert_selection_fn is neither softmax nor sigmoid");
  }
  return name == "sigmoid" ? Score::kSigmoid : Score::kSoftmax;
}

// Layers with a window are listed, or have periods: one of the dense layers in front and one of the others.
void ReadCohereLayers(ConfigReader& read, DecoderForm* form) {
  const std::vector<bool>& sparse = form->mixture.config.sparse;
  const int32_t layers = form->decoder.layers;
  const int32_t dense_period = read.Small({"prefix_dense_sliding_window_pattern", ""}, 1, kMaxLayers, 1);
  const int32_t period = read.Small({"sliding_window_pattern", ""}, 1, kMaxLayers, 4);
  const int32_t prefix = read.Small({"first_k_dense_replace", ""}, 0, kMaxLayers, 0);
  const bool listed = read.gguf() || read.Find({"layer_types", ""}) != nullptr;
  form->SetWindows(ReadWindows(
      read, layers, [](int32_t layer, int32_t every) { return layer % every != 0; }, 4, 4096));
  for (int32_t i = 0; i < layers; ++i) {
    LayerForm& layer = form->layers[static_cast<size_t>(i)];
    if (!listed) {
      const bool slides = i < prefix ? (i + 1) % dense_period != 0 : (i - prefix + 1) % period != 0;
      layer.window = slides ? read.Small({"sliding_window", ""}, 0, kMaxContext, 4096) : 0;
    }
    // Positions are for the layers with a window, and for dense ones that never have any.
    const bool rotated = layer.window > 0 || (!sparse[static_cast<size_t>(i)] && dense_period == 1);
    layer.rope = rotated ? 0 : LayerForm::kNoRope;
  }
}

void ReadCohereMixture(ConfigReader& read, DecoderForm* form) {
  MixtureConfig& mixture = form->mixture.config;
  mixture.choice_bias = false;
  // A softmax of the chosen alone.
  if (!read.gguf() && mixture.score == MixtureConfig::Score::kSoftmax) mixture.normalize = true;
  if (mixture.groups != 1) read.Fail("n_group: only 1 is supported");
  const std::string combined = read.Text({"shared_expert_combination_strategy", ""}, "average");
  if (combined != "average" && combined != "sum") {
    read.Fail("shared_expert_combination_strategy is neither average nor sum");
  }
  if (mixture.shared_width > 0 && combined == "average") {
    mixture.scale *= 0.5F;
    mixture.shared_scale = 0.5F;
  }
  if (std::ranges::count(mixture.sparse, false) != 0) {
    form->feed_forward = read.Small({"prefix_dense_intermediate_size", "feed_forward_length"}, 1, kMaxWidth);
  }
  read.Ignore({"prefix_dense_intermediate_size"});
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadCohere2Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  constexpr auto kPairs = kernels::RopePairs::kInterleaved;
  const bool rms = read.Find({"rms_norm_eps", "attention.layer_norm_rms_epsilon"}) != nullptr;
  read.Ignore({"layer_norm_eps"});  // beside rms_norm_eps
  DecoderForm form =
      ReadMixtureForm(read,
                      {.given = {.head_dim = read.gguf() ? 0 : 128,
                                 .context = 8192,
                                 .norm = rms ? NormKind::kRms : NormKind::kLayer,
                                 .norm_eps = 1e-5F},
                       .tied = TiedByDefault::kYes,
                       .rope = {.default_theta = 10000, .pairs = kPairs, .gguf_pairs = kPairs}},
                      {.score = ReadCohereScore(read), .normalize = !read.gguf()});
  form.mtp_layers = 0;  // they are left out
  ReadCohereLayers(read, &form);
  ReadCohereMixture(read, &form);
  for (const std::string_view key : {"use_parallel_block", "use_gated_activation"}) read.Require(key, true);
  read.Require("use_qk_norm", false);
  form.norms = NormPlaces::kParallel;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.logit_scale = static_cast<float>(read.Positive({"logit_scale", "logit_scale"}, 1e6, 0.0625));
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
