#include <string_view>

#include "runner/models/decoder_form.h"
#include "runner/models/expert_transpose.h"
#include "runner/models/families.h"

namespace quire::runner::models {

namespace {

// As published, the stacked experts of Qwen3-VL are [in, out]. transformers also writes them [out, in].
void BindQwen3VlExperts(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                        MixtureOfExperts* moe) {
  const TensorName gate_up = {"mlp.experts.gate_up_proj", ""}, down = {"mlp.experts.down_proj", ""};
  const std::vector<int64_t> published = {config.experts, config.width, hidden};
  if (scope.gguf() || scope.ShapeOf(down) != published) {
    return BindExperts(scope, MixtureNames().experts, config.experts, hidden, config.width, moe);
  }
  BindTransposedExperts(scope, gate_up, down, config.experts, hidden, config.width, moe);
}

DecoderForm ReadQwen3Moe(ConfigReader& read, const FormQuery& query, const MixtureDefaults& defaults) {
  DecoderForm form = ReadMixtureForm(read, query, defaults);
  form.qk_norm = QkNorm::kHeads;
  const bool biased = read.Boolean({"attention_bias", ""}, false);
  form.attention_bias = form.out_bias = biased ? Bias::kPresent : Bias::kAbsent;
  // sliding_window has a meaning with use_sliding_window only. Unlike in Qwen3, it is then for all layers.
  read.Ignore({"sliding_window", "max_window_layers"});
  if (read.Boolean({"use_sliding_window", ""}, false)) {
    form.SetWindows(ReadWindows(
        read, form.decoder.layers, [](int32_t, int32_t) { return true; }, 0, 4096));
  }
  return form;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadQwen3Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // GGUF has no key for norm_topk_prob.
  const DecoderForm form = ReadQwen3Moe(read, {.given = {.norm_eps = 1e-6F}}, {.normalize = read.gguf()});
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadQwen3VlMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadQwen3Moe(read,
                                  {.given = {.norm_eps = 1e-6F},
                                   .rope = {.default_theta = 5e5,
                                            .sections = RopeSections::kInterleaved,
                                            .given_sections = {24, 20, 20}}},
                                  {.normalize = true});
  form.mixture.bind_experts = BindQwen3VlExperts;
  return BuildDeclared(read, std::move(files), form);
}

// Mellum: windows in some layers, which have rotary angles of their own.
api::Result<std::unique_ptr<Model>> LoadMellum(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const auto rope = [](std::string_view type, double theta, std::string_view gguf_theta) {
    return RopeQuery{.head_dim = 0,
                     .layer_type = type,
                     .theta = {"", gguf_theta},
                     .default_theta = theta,
                     .partial_allowed = true};
  };
  constexpr std::string_view kBase = "rope.freq_base", kSlidingBase = "rope.freq_base_swa";
  DecoderForm form = ReadMixtureForm(read,
                                     {.given = {.head_dim = read.gguf() ? 0 : 128, .norm_eps = 1e-6F},
                                      .rope = rope("full_attention", 500000, kBase)},
                                     {});
  const bool own = read.Find({"", kSlidingBase}) != nullptr;
  RopeQuery sliding = rope("sliding_attention", 10000, own ? kSlidingBase : kBase);
  sliding.head_dim = form.decoder.head_dim;
  sliding.scaled = !read.gguf();
  form.ropes.push_back(ReadRope(read, sliding));
  form.SetWindows(ReadWindows(
      read, form.decoder.layers, [](int32_t layer, int32_t every) { return every > 0 && layer % every != 3; },
      read.gguf() ? 4 : 0, read.gguf() ? 0 : 1024));
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 1 : 0;
  form.qk_norm = QkNorm::kHeads;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
