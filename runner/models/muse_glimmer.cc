#include <cmath>
#include <nlohmann/json.hpp>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// Layers without a base are not rotated; the bases of the others are said twice.
void ReadBases(ConfigReader& read, DecoderForm* form) {
  constexpr const char* kBases = "layer_rope_theta";
  const auto* const bases = read.gguf() ? nullptr : read.Find({kBases, ""});
  if (bases != nullptr && (!bases->is_array() || bases->size() != form->layers.size())) {
    return read.Fail("layer_rope_theta is not a list of one number per layer");
  }
  const double known =
      read.Positive({"rope_parameters/rope_theta|rope_theta", "rope.freq_base"}, 1e15, 10000);
  const size_t layers = form->layers.size();
  for (size_t i = 0; i < layers; ++i) {
    bool rotated = (layers - 1 - i) % 4 != 0;
    if (bases != nullptr) {
      if (!(*bases)[i].is_number()) return read.Fail("layer_rope_theta has an entry that is no number");
      rotated = (*bases)[i] != 0;
      if (rotated && (*bases)[i].get<double>() != known) {
        return read.Fail("layer_rope_theta: only 0 and rope_theta are supported");
      }
    } else if (read.gguf()) {
      rotated = form->layers[i].window > 0;
    }
    form->layers[i].rope = rotated ? 0 : LayerForm::kNoRope;
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadMuseGlimmer(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.head_dim = read.gguf() ? 0 : 128,
                                       .context = 131072,
                                       .norm = NormKind::kZeroCenteredRms,
                                       .norm_eps = 1e-5F},
                             .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}});
  const int32_t last = form.decoder.layers - 1;
  std::vector<int32_t> windows = ReadWindows(
      read, form.decoder.layers, [](int32_t layer, int32_t end) { return (end - layer) % 4 != 0; }, last,
      2048);
  form.SetWindows(windows);
  ReadBases(read, &form);
  form.norms = NormPlaces::kAround;
  form.embedding_norm = NormKind::kPlainRms;
  form.final_norm = NormKind::kRms;
  form.post_norm_eps = static_cast<float>(read.Positive({"post_norm_eps", ""}, 1, 1e-8));
  // GGUF files have the queries' factor as weights of their norm.
  form.qk_norm = read.gguf() ? QkNorm::kHeads : QkNorm::kUnitHeads;
  const double factor = read.Positive({"qk_scale_factor", ""}, 1e6, read.gguf() ? 1 : 3.87);
  form.attention_scale = static_cast<float>(factor / std::sqrt(static_cast<double>(form.decoder.head_dim)));
  form.output_gate = OutputGate::Kind::kSigmoid;
  form.logit_scale =
      static_cast<float>(read.Positive({"output_multiplier", "logit_scale"}, 1e6, 0.19611613513818404));
  form.logit_cap =
      static_cast<float>(read.Positive({"final_logit_softcapping", "final_logit_softcapping"}, 1e6, 20));
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.names.embedding_norm = {"embed_norm", ""};  // without weights
  form.names.mlp_norm = {"pre_feedforward_layernorm", "ffn_norm"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
