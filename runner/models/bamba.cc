#include <nlohmann/json.hpp>

#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"

namespace quire::runner::models {
namespace {

void ReadBambaLayers(ConfigReader& read, HybridForm* form) {
  const auto* attends = read.Find({"attn_layer_indices", ""});
  if (attends != nullptr && !attends->is_array()) return read.Fail("attn_layer_indices is not a list");
  for (size_t i = 0; attends != nullptr && i < attends->size(); ++i) {
    const int64_t layer = ConfigReader::WholeNumber((*attends)[i]).value_or(-1);
    if (layer < 0 || layer >= form->decoder.layers)
      return read.Fail("attn_layer_indices must contain layer numbers");
    form->layers[static_cast<size_t>(layer)].attends = true;
  }
  for (HybridLayer& layer : form->layers) {
    layer.mamba = !layer.attends;
    layer.feed = HybridLayer::Feed::kMlp;
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadBamba(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  HybridForm form = ReadHybridForm(read, {.given = {.context = 262144, .norm_eps = 1e-5F}});
  form.mamba = ReadMamba2(read, kGraniteMambaKeys, form.decoder.hidden);
  ReadBambaLayers(read, &form);
  form.feed_forward = ReadFeedForward(read);
  const int32_t dim = form.decoder.head_dim;
  const int32_t rotated = read.Small({"attn_rotary_emb", ""}, 2, dim, dim);
  // partial_rotary_factor is written with every configuration, but transformers 5.12 rotates whole heads,
  // unless their frequencies are scaled; the published models have attn_rotary_emb.
  const std::string type =
      read.Text({"rope_parameters/rope_type|rope_scaling/rope_type|rope_scaling/type", ""}, "default");
  const bool half = type != "default" && read.Find({"attn_rotary_emb", ""}) == nullptr;
  form.rope = ReadRope(
      read,
      {.head_dim = dim, .default_theta = 10000, .partial = half ? 0.5 : static_cast<double>(rotated) / dim});
  form.attention_bias = form.attention_out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  read.Ignore({"z_loss_coefficient"});
  return BuildHybrid(read, std::move(files), form);
}

}  // namespace quire::runner::models
