// The towers of Qwen2-VL (Wang et al. 2024), Qwen2.5-VL (Bai et al. 2025), Qwen3-VL (Qwen Team 2025) and of
// its relatives.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"
#include "runner/models/vision_families.h"

namespace quire::runner::models {
namespace {

// The numbers of the layers that deepstack reads behind.
std::vector<int32_t> ReadTaps(VisionConfig& config, int32_t layers) {
  std::vector<int32_t> taps;
  if (config.gguf() && !config.blob) {
    const auto which = config.vision.Booleans({"", "vision.is_deepstack_layers"}, layers);
    for (size_t i = 0; which && i < which->size(); ++i) {
      if ((*which)[i]) taps.push_back(static_cast<int32_t>(i));
    }
    return taps;
  }
  constexpr ConfigKey kKey = {"deepstack_visual_indexes", "vision.deepstack_visual_indexes"};
  const auto* list = config.vision.Find(kKey);
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const auto layer = list->is_array() ? ConfigReader::WholeNumber((*list)[i]) : std::nullopt;
    if (!layer || *layer >= layers || *layer < (taps.empty() ? 0 : taps.back() + 1)) {
      config.vision.Fail(fmt::format("{} is not an ascending list of layers", config.vision.Name(kKey)));
      return {};
    }
    taps.push_back(static_cast<int32_t>(*layer));
  }
  return taps;
}

// What all of them share.
void ReadQwenLayers(VisionConfig& config, const char* hidden, const char* ratio, VisionPlan& plan) {
  ReadVisionSizes(config, plan,
                  {.hidden = hidden,
                   .layers = "depth|num_hidden_layers",
                   .heads = "num_heads|num_attention_heads",
                   .ratio = ratio});
  EncoderForm& form = plan.encoder;
  form.norms = EncoderNorms::kBefore;
  form.norm_eps = ReadVisionEps(config, 1e-6);
  UseGridRope(config, form, 10000);
  EncoderNames& names = form.names;
  names.prefix = config.gguf()
                     ? "v."
                     : FindPrefix(config.vision, {"model.visual.", "visual.", "model.vision_tower."},
                                  "patch_embed.proj.weight");
  names.layers = "blocks.";
  names.qkv = {"attn.qkv", "attn_qkv"};
  names.q = {"", "attn_q"}, names.k = {"", "attn_k"}, names.v = {"", "attn_v"};
  names.out = {"attn.proj", "attn_out"};
  names.attention_norm = {"norm1", "ln1"};
  names.mlp_norm = {"norm2", "ln2"};
  plan.frames = config.vision.Small({"temporal_patch_size", "vision.temporal_patch_size"}, 1, 8, 2);
  plan.tower.in_blocks = true;
  plan.tower.patches_max = 1 << 16;
  ProjectorPlan& projector = plan.projector;
  projector.side = config.vision.Small({"spatial_merge_size", "vision.spatial_merge_size"}, 1, 16, 2);
  projector.inner = int64_t{form.hidden} * projector.side * projector.side;
  projector.before.eps = 1e-6F;
  config.vision.Ignore({"hidden_size", "out_hidden_size"});
}

// Qwen2.5-VL: layers whose patches see their window, but for some.
void ReadWindows(VisionConfig& config, VisionPlan& plan) {
  EncoderForm& form = plan.encoder;
  form.windowed.assign(static_cast<size_t>(form.layers), true);
  const int32_t pixels = config.vision.Small({"window_size", "vision.window_size"}, 1, 1 << 16, 112);
  plan.tower.window = pixels / plan.projector.side / plan.tower.patch;
  if (plan.tower.window < 1) config.vision.Fail("window_size is less than a square of merged patches");
  constexpr ConfigKey kKey = {"fullatt_block_indexes", "vision.fullatt_block_indexes"};
  const auto* list = config.vision.Find(kKey);
  if (list == nullptr) {  // an mmproj file: every n-th
    const auto period = config.vision.Small({"", "vision.n_wa_pattern"}, 0, kMaxLayers, 8);
    for (int32_t i = 0; i < form.layers; ++i) {
      if (period == 0 || (i + 1) % period == 0) form.windowed[static_cast<size_t>(i)] = false;
    }
    return;
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const auto layer = list->is_array() ? ConfigReader::WholeNumber((*list)[i]) : std::nullopt;
    if (!layer || *layer < 0 || *layer >= form.layers) {
      return config.vision.Fail(fmt::format("{} is not a list of layers", config.vision.Name(kKey)));
    }
    form.windowed[static_cast<size_t>(*layer)] = false;
  }
}

}  // namespace

VisionPlan ReadQwen2Vision(VisionConfig& config) {
  VisionPlan plan;
  const weights::ModelFiles& files = config.vision.files();
  const bool windows = config.gguf() ? files.Find("v.blk.0.ffn_gate.weight") != nullptr
                                     : config.model.files().architecture() != "qwen2_vl";
  ReadQwenLayers(config, windows ? "hidden_size" : "embed_dim", windows ? nullptr : "mlp_ratio", plan);
  EncoderForm& form = plan.encoder;
  EncoderNames& names = form.names;
  names.up = {windows ? "mlp.up_proj" : "mlp.fc1", "ffn_up"};
  names.down = {windows ? "mlp.down_proj" : "mlp.fc2", "ffn_down"};
  names.gate = {"mlp.gate_proj", "ffn_gate"};
  form.gated = windows;
  form.norm = windows ? NormKind::kRms : NormKind::kLayer;
  form.activation = ReadEncoderActivation(config.vision, "hidden_act", windows ? "silu" : "quick_gelu");
  plan.patches = {"patch_embed.proj.weight", config.blob ? "patch_embd_0.weight" : "patch_embd.weight"};
  plan.more_patches = {"", config.blob ? "patch_embd_1.weight" : "patch_embd.weight.1"};
  if (config.gguf()) plan.frames = 1;
  ProjectorPlan& projector = plan.projector;
  projector.prefix = config.gguf() ? (config.blob ? "v.merger." : "") : names.prefix + "merger.";
  projector.before.name = {"ln_q", config.blob ? "ln_q" : "v.post_ln"};
  projector.before.kind = form.norm;
  projector.first = {"mlp.0", config.blob ? "mlp.0" : "mm.0"};
  projector.out = {"mlp.2", config.blob ? "mlp.2" : "mm.2"};
  if (windows) ReadWindows(config, plan);
  return plan;
}

VisionPlan ReadQwen3Vision(VisionConfig& config) {
  VisionPlan plan;
  ReadQwenLayers(config, "hidden_size", nullptr, plan);
  EncoderForm& form = plan.encoder;
  form.activation = ReadEncoderActivation(config.vision, "hidden_act", "gelu_pytorch_tanh");
  EncoderNames& names = form.names;
  if (config.blob) {
    names.attention_norm.gguf = "norm1";
    names.mlp_norm.gguf = "norm2";
  }
  names.up = {"mlp.linear_fc1", config.blob ? "mlp.linear_fc1" : "ffn_up"};
  names.down = {"mlp.linear_fc2", config.blob ? "mlp.linear_fc2" : "ffn_down"};
  plan.patches = {"patch_embed.proj.weight", config.blob ? "patch_embed.weight" : "patch_embd.weight"};
  plan.patch_bias = {"patch_embed.proj.bias", config.blob ? "patch_embed.bias" : "patch_embd.bias"};
  if (config.gguf() && !config.blob) {
    plan.more_patches = {"", "patch_embd.weight.1"};
    plan.frames = 1;
  }
  plan.grid = PositionGrid::kCorners;
  plan.positions = {"pos_embed.weight", config.blob ? "pos_embed.weight" : "position_embd.weight"};
  const auto places = config.vision.Small({"num_position_embeddings", ""}, 1, 1 << 20, 2304);
  plan.side = SideOfTable(config, config.blob ? "v.pos_embed.weight" : "v.position_embd.weight",
                          static_cast<int32_t>(std::sqrt(static_cast<double>(places))));
  plan.tower.taps = ReadTaps(config, form.layers);
  ProjectorPlan& projector = plan.projector;
  projector.prefix = config.gguf() ? (config.blob ? "v.merger." : "") : names.prefix + "merger.";
  projector.before.name = {"norm", config.blob ? "norm" : "v.post_ln"};
  projector.first = {"linear_fc1", config.blob ? "linear_fc1" : "mm.0"};
  projector.out = {"linear_fc2", config.blob ? "linear_fc2" : "mm.2"};
  for (size_t i = 0; i < plan.tower.taps.size(); ++i) {
    ProjectorPlan tap = projector;
    tap.before = {};
    tap.after.name = {"norm", "norm"};
    tap.after.eps = 1e-6F;
    tap.first = {"linear_fc1", config.blob ? "linear_fc1" : "fc1"};
    tap.out = {"linear_fc2", config.blob ? "linear_fc2" : "fc2"};
    tap.prefix = config.blob     ? fmt::format("v.deepstack_merger.{}.", i)
                 : config.gguf() ? fmt::format("v.deepstack.{}.", plan.tower.taps[i])
                                 : fmt::format("{}deepstack_merger_list.{}.", names.prefix, i);
    plan.tap_projectors.push_back(std::move(tap));
  }
  return plan;
}

}  // namespace quire::runner::models
