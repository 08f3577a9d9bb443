#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/kernels/attention.h"
#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

constexpr double kMimoShare = 0.334;  // of a head that is rotated

// Which layers have a window: a list of types, of truth values, or all but the first and each sixth.
void ReadMimoWindows(ConfigReader& read, DecoderForm* form) {
  const int32_t layers = form->decoder.layers, stored = layers + (read.gguf() ? form->mtp_layers : 0);
  std::vector<int32_t> windows = ReadWindows(
      read, stored, [](int32_t layer, int32_t every) { return layer != 0 && (layer + 1) % every != 0; }, 6,
      129);
  windows.resize(static_cast<size_t>(layers));
  int32_t window = read.Small({"sliding_window", ""}, 0, kMaxContext - 1, 129);
  // The key of the published configurations counts the tokens before one's own.
  constexpr ConfigKey kBefore = {"sliding_window_size", ""};
  if (read.Find(kBefore) != nullptr) window = read.Small(kBefore, 0, kMaxContext - 1) + 1;
  constexpr ConfigKey kPattern = {"hybrid_layer_pattern", ""};
  const bool typed = read.Find({"layer_types", ""}) != nullptr;
  const bool flagged = !read.gguf() && read.Find(kPattern) != nullptr && !typed;
  const std::vector<int64_t> flags =
      flagged ? read.Integers(kPattern, layers, 0, 1) : std::vector<int64_t>(windows.size());
  for (size_t i = 0; !read.gguf() && i < windows.size(); ++i) {
    windows[i] = (flagged ? flags[i] != 0 : windows[i] > 0) ? window : 0;
  }
  form->SetWindows(windows);
}

// Layers with a window have KV heads of their own number, and sinks.
void ReadMimoHeads(ConfigReader& read, DecoderForm* form) {
  DecoderConfig& decoder = form->decoder;
  ReadLayerHeads(read, {"num_attention_heads", "attention.head_count"},
                 {"num_key_value_heads", "attention.head_count_kv"}, form);
  form->value_dim = read.Small({"v_head_dim", "attention.value_length"}, 2, kernels::kMaxHeadDim,
                               read.gguf() ? decoder.head_dim : 128);
  for (const auto& [key, only] :
       {std::pair("swa_num_attention_heads", decoder.heads), std::pair("swa_head_dim", decoder.head_dim),
        std::pair("swa_v_head_dim", form->value_dim)}) {
    read.Require(key, static_cast<double>(only));
  }
  const int32_t sliding = read.Small({"swa_num_key_value_heads", ""}, 1, kMaxHeads, 2 * decoder.kv_heads);
  const bool sinks = read.Boolean({"add_swa_attention_sink_bias", ""}, true);
  const bool full_sinks = read.Boolean({"add_full_attention_sink_bias", ""}, false);
  for (size_t i = 0; i < form->layers.size(); ++i) {
    LayerForm& layer = form->layers[i];
    if (read.gguf()) {
      layer.sinks = read.files().Find("blk." + std::to_string(i) + ".attn_sinks.weight") != nullptr;
      continue;
    }
    layer.sinks = layer.window > 0 ? sinks : full_sinks;
    if (layer.window > 0) layer.kv_heads = sliding;
    CheckHeads(read, layer.heads, layer.kv_heads, std::max(decoder.head_dim, form->value_dim));
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadMimoV2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const auto eps = static_cast<float>(read.Positive({"layernorm_epsilon", ""}, 1, 1e-5));
  const bool stated = read.gguf() || read.Says("rope_parameters");
  RopeQuery rope{.layer_type = "full_attention",
                 .default_theta = 5e6,
                 .default_partial = stated ? 1 : kMimoShare,
                 .partial_allowed = true};
  DecoderForm form = ReadMixtureForm(
      read,
      {.given = {.heads = -1, .kv_heads = -1, .head_dim = read.gguf() ? 0 : 192, .norm_eps = eps},
       .rope = rope},
      {.score = MixtureConfig::Score::kSigmoid, .first_dense = 1, .as_stored = true});
  ReadMimoWindows(read, &form);
  ReadMimoHeads(read, &form);
  form.mtp_layers = 0;  // they are left out
  rope.head_dim = form.decoder.head_dim;
  rope.layer_type = "sliding_attention";
  rope.theta = {"swa_rope_theta", "rope.freq_base_swa"};
  rope.default_theta = 10000;
  form.ropes.push_back(ReadRope(read, rope));
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 1 : 0;
  constexpr ConfigKey kScale = {"attention_value_scale", "attention.value_scale"};
  const bool scaled = !read.gguf() && !read.SaysNull(kScale.hugging_face);
  form.value_scale = static_cast<float>(read.Positive(kScale, 1e6, scaled ? 0.707 : 1));
  form.attention_bias = ReadBias(read, "attention_bias");
  read.Ignore({"attention_chunk_size", "hybrid_block_size"});  // as the window
  form.names.attention.qkv = {"self_attn.qkv_proj", "attn_qkv"};
  form.names.attention.sinks = {"self_attn.attention_sink_bias", "attn_sinks.weight"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
