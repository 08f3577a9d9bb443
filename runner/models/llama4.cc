#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/expert_transpose.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// Which layers rotate, and attend to their chunk alone: three of four, unless the configuration has lists.
void ReadLlama4Layers(ConfigReader& read, DecoderForm* form) {
  const int32_t layers = form->decoder.layers;
  const int32_t period = read.Small({"no_rope_layer_interval", ""}, 1, kMaxLayers, 4);
  const bool listed = read.Find({"no_rope_layers", ""}) != nullptr;
  const auto rotated = listed ? read.Integers({"no_rope_layers", ""}, layers, 0, 1) : std::vector<int64_t>();
  const auto typed = read.Kinds({"layer_types", ""}, layers, "chunked_attention", "full_attention");
  const int32_t chunk = read.Small({"attention_chunk_size", "attention.chunk_size"}, 0, kMaxContext, 8192);
  // As llama.cpp has it: a GGUF with a window of 0 has no chunks and rotates in all layers.
  const bool whole = chunk == 0 || read.Integer({"", "attention.sliding_window"}, 0, kMaxContext, chunk) == 0;
  for (int32_t i = 0; i < layers; ++i) {
    LayerForm& layer = form->layers[static_cast<size_t>(i)];
    const bool rotates =
        listed ? rotated[static_cast<size_t>(i)] != 0 : (read.gguf() && whole) || (i + 1) % period != 0;
    if (!rotates) layer.rope = LayerForm::kNoRope;
    const bool chunked = typed ? (*typed)[static_cast<size_t>(i)] : rotates && !whole;
    if (chunked && whole) read.Fail("attention_chunk_size is missing");
    if (chunked) {
      layer.window = chunk;
      layer.chunked = true;
    }
  }
}

// Without positions, queries grow instead.
void ReadLlama4Growth(ConfigReader& read, DecoderForm* form) {
  const double scale = read.Positive({"attn_scale", "attention.temperature_scale"}, 1e3, 0.1);
  const int64_t floor = read.Integer({"floor_scale", "attention.temperature_length"}, 1, kMaxContext, 8192);
  if (!read.Boolean({"attn_temperature_tuning", ""}, true)) return;
  form->query_growth = {.beta = static_cast<float>(scale), .context = floor, .offset = 1};
  form->growth_unrotated = true;
}

// Every interleave_moe_layer_step-th layer has experts, or those of a list.
std::vector<bool> ReadLlama4Sparse(ConfigReader& read, int32_t layers) {
  const int32_t step =
      read.Small({"interleave_moe_layer_step", "interleave_moe_layer_step"}, 1, kMaxLayers, 1);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  const auto* listed = read.Find({"moe_layers", ""});
  if (listed == nullptr) {
    for (int32_t i = 0; i < layers; ++i) sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
    return sparse;
  }
  for (const auto& entry : *listed) {
    const int64_t layer = ConfigReader::WholeNumber(entry).value_or(-1);
    if (layer < 0 || layer >= layers) {
      read.Fail("moe_layers must contain layer numbers");
    } else {
      sparse[static_cast<size_t>(layer)] = true;
    }
  }
  return sparse;
}

// A checkpoint has its experts [in, out], gate and up side by side.
void BindLlama4Experts(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                       MixtureOfExperts* moe) {
  if (scope.gguf()) return BindExperts(scope, {}, config.experts, hidden, config.width, moe);
  BindTransposedExperts(scope, {"feed_forward.experts.gate_up_proj", ""},
                        {"feed_forward.experts.down_proj", ""}, config.experts, hidden, config.width, moe);
}

void NameLlama4(BlockNames* names, MixtureForm* mixture) {
  names->mlp = {.gate = {"feed_forward.gate_proj", "ffn_gate"},
                .up = {"feed_forward.up_proj", "ffn_up"},
                .down = {"feed_forward.down_proj", "ffn_down"}};
  mixture->names.router = {"feed_forward.router", "ffn_gate_inp"};
  mixture->names.shared = {.gate = {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
                           .up = {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
                           .down = {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"}};
  mixture->bind_experts = BindLlama4Experts;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadLlama4(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  constexpr auto kInterleaved = kernels::RopePairs::kInterleaved;
  DecoderForm form =
      ReadMixtureForm(read,
                      {.given = {.head_dim = read.gguf() ? 0 : 128, .norm_eps = 1e-5F},
                       .rope = {.default_theta = 500000, .pairs = kInterleaved, .gguf_pairs = kInterleaved}},
                      {.score = MixtureConfig::Score::kSigmoid, .normalize = false});
  ReadLlama4Layers(read, &form);
  ReadLlama4Growth(read, &form);
  MixtureConfig& mixture = form.mixture.config;
  mixture.choice_bias = false;
  mixture.scale_inputs = true;
  mixture.shared_width = mixture.width;
  mixture.sparse = ReadLlama4Sparse(read, form.decoder.layers);
  form.feed_forward = read.Small({"intermediate_size_mlp", "feed_forward_length"}, 1, kMaxWidth, 16384);
  // GGUF does not say it: the largest model has no norms.
  const bool norms = read.Boolean({"use_qk_norm", "use_qk_norm"}, !read.gguf() || mixture.experts != 128);
  if (norms) {
    form.qk_norm = QkNorm::kUnitHeads;
    form.norm_unrotated = false;
    // The norms are behind the rotation, which they undo the growth of, but for its part of the epsilon.
    form.qk_eps = form.decoder.norm_eps / (form.ropes[0].magnitude * form.ropes[0].magnitude);
    form.ropes[0].magnitude = form.ropes[0].short_magnitude = 1;
  }
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  NameLlama4(&form.names, &form.mixture);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
