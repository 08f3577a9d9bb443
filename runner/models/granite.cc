#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

void ReadMultipliers(ConfigReader& read, DecoderForm* form) {
  form->embedding_scale = ReadMultiplier(read, {"embedding_multiplier", "embedding_scale"});
  form->residual_scale = ReadMultiplier(read, {"residual_multiplier", "residual_scale"});
  form->attention_scale = ReadMultiplier(read, {"attention_multiplier", "attention.scale"});
  form->logit_scale = 1 / ReadMultiplier(read, {"logits_scaling", "logit_scale"});
  form->attention_bias = form->out_bias = ReadBias(read, "attention_bias");
}

constexpr FormQuery kGranite = {
    .given = {.context = 2048, .norm_eps = 1e-6F},
    .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}};

// A base per layer, 0 = no positions; GGUF files have one base, and layers without positions.
void ReadLayerBases(ConfigReader& read, DecoderForm* form) {
  const int32_t layers = form->decoder.layers;
  if (read.gguf()) {
    // Rows are permuted in these layers too: a rotation by no angle puts queries and keys in order.
    RopeSpec still = form->ropes[0];
    std::ranges::fill(still.frequencies, 0.0F);
    form->ropes.push_back(still);
    const auto rotated = read.Booleans({"", "attention.rope_pattern"}, layers);
    for (size_t i = 0; rotated && i < rotated->size(); ++i) {
      if (!(*rotated)[i]) form->layers[i].rope = 1;
    }
    return;
  }
  const auto* const bases = read.Find({"layer_rope_theta", ""});
  if (bases != nullptr && (!bases->is_array() || bases->size() != form->layers.size())) {
    return read.Fail("layer_rope_theta is not a list of one number per layer");
  }
  std::vector<double> known;
  if (bases != nullptr) form->ropes.clear();
  for (size_t i = 0; bases != nullptr && i < form->layers.size(); ++i) {
    const double base = (*bases)[i].is_number() ? (*bases)[i].get<double>() : -1;
    if (base < 0 || base > 1e15) return read.Fail("layer_rope_theta has an entry that is no base");
    const auto found = std::ranges::find(known, base);
    form->layers[i].rope = base == 0 ? LayerForm::kNoRope : static_cast<int32_t>(found - known.begin());
    if (base == 0 || found != known.end()) continue;
    known.push_back(base);
    RopeQuery query = kGranite.rope;
    query.head_dim = form->decoder.head_dim;
    query.base = base;
    form->ropes.push_back(ReadRope(read, query));
  }
  // Said again for programs that know one base alone.
  if (read.Find({"no_rope_layers", ""}) == nullptr) return;
  const std::vector<int64_t> rotated = read.Integers({"no_rope_layers", ""}, layers, 0, 1);
  for (size_t i = 0; i < rotated.size(); ++i) {
    if ((rotated[i] != 0) != (form->layers[i].rope != LayerForm::kNoRope)) {
      return read.Fail("no_rope_layers and layer_rope_theta contradict each other");
    }
  }
}

// Checkpoints of granitemoe_swa name their experts as Granite's do, or as transformers saves them.
MixtureNames GraniteSwaMixtureNames(const weights::ModelFiles& files) {
  MixtureNames names = GraniteMixtureNames();
  names.shared.gate_up = {"shared_mlp.input_linear", "ffn_up_shexp"};
  const bool saved = std::ranges::any_of(files.tensors(), [](const weights::Tensor& tensor) {
    return tensor.name.ends_with("block_sparse_moe.router.weight");
  });
  if (saved) {
    names.router = {"block_sparse_moe.router", "ffn_gate_inp"};
    names.experts.gate_up_stacked = "block_sparse_moe.experts.gate_up_proj";
    names.experts.down_stacked = "block_sparse_moe.experts.down_proj";
  }
  return names;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGranite(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, kGranite);
  ReadMultipliers(read, &form);
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

// HyperCLOVA X: with norms behind attention and feed-forward too, and logits that are multiplied.
api::Result<std::unique_ptr<Model>> LoadHyperClovaX(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, kGranite);
  ReadMultipliers(read, &form);
  form.logit_scale = ReadMultiplier(read, {"logits_scaling", ""});
  if (read.Find({"attention_multiplier", ""}) == nullptr) form.attention_scale = 0;
  form.mlp_bias = ReadBias(read, "mlp_bias");
  if (read.Boolean({"use_post_norm", ""}, true)) form.norms = NormPlaces::kAround;
  form.names.mlp_norm = {"post_attention_layernorm", ""};
  form.names.post_attention_norm = {"post_norm1", ""};
  form.names.post_mlp_norm = {"post_norm2", ""};
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadGraniteMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(read, kGranite, {.normalize = true});
  ReadMultipliers(read, &form);
  form.mixture.config.shared_width =
      read.Small({"shared_intermediate_size", "expert_shared_feed_forward_length"}, 0, kMaxWidth, 0);
  form.mixture.names = GraniteMixtureNames();
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadGraniteSwa(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const bool mixed =
      files->architecture() == "granitemoe_swa" || read.Integer({"", "expert_count"}, 0, kMaxExperts, 0) > 0;
  DecoderForm form =
      mixed ? ReadMixtureForm(read, kGranite, {.normalize = true}) : ReadDecoderForm(read, kGranite);
  form.SetWindows(ReadWindows(
      read, form.decoder.layers, [](int32_t layer, int32_t every) { return layer % every != 0; }, 4, 128));
  ReadMultipliers(read, &form);
  ReadLayerBases(read, &form);
  for (LayerForm& layer : form.layers) layer.sinks = true;
  if (mixed) {
    form.mixture.config.shared_width =
        read.Small({"shared_intermediate_size", "expert_shared_feed_forward_length"}, 0, kMaxWidth, 0);
    form.mixture.names = GraniteSwaMixtureNames(*files);
  } else {
    form.mlp_bias = ReadBias(read, "mlp_bias");
  }
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
