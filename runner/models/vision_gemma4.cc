// The tower of Gemma 4 (Google 2026): layers with norms around them, and tables of positions for rows and
// columns.
#include <algorithm>
#include <cmath>

#include "runner/kernels/key_value.h"
#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"
#include "runner/models/vision_families.h"

namespace quire::runner::models {
namespace {

EncoderNames Gemma4VisionNames(VisionConfig& config) {
  EncoderNames names;
  names.prefix = config.gguf() ? "v."
                               : FindPrefix(config.vision, {"model.vision_tower.", "vision_tower."},
                                            "patch_embedder.input_proj.weight");
  names.layers = "encoder.layers.";
  names.q = {"self_attn.q_proj.linear", "attn_q"};
  names.k = {"self_attn.k_proj.linear", "attn_k"};
  names.v = {"self_attn.v_proj.linear", "attn_v"};
  names.out = {"self_attn.o_proj.linear", "attn_out"};
  names.q_norm = {"self_attn.q_norm", "attn_q_norm"};
  names.k_norm = {"self_attn.k_norm", "attn_k_norm"};
  names.attention_norm = {"input_layernorm", "ln1"};
  names.post_attention_norm = {"post_attention_layernorm", "attn_post_norm"};
  names.mlp_norm = {"pre_feedforward_layernorm", "ln2"};
  names.post_mlp_norm = {"post_feedforward_layernorm", "ffn_post_norm"};
  names.gate = {"mlp.gate_proj.linear", "ffn_gate"};
  names.up = {"mlp.up_proj.linear", "ffn_up"};
  names.down = {"mlp.down_proj.linear", "ffn_down"};
  return names;
}

}  // namespace

VisionPlan ReadGemma4Vision(VisionConfig& config) {
  VisionPlan plan;
  ReadVisionSizes(config, plan);
  EncoderForm& form = plan.encoder;
  form.kv_heads = config.vision.Small({"num_key_value_heads", ""}, 1, kMaxHeads, form.heads);
  form.head_dim = config.vision.Small({"head_dim", ""}, 4, kernels::kMaxHeadDim, form.head_dim);
  if (form.heads % form.kv_heads != 0) config.vision.Fail("the heads cannot share KV heads");
  form.norm = NormKind::kRms;
  form.norms = EncoderNorms::kAround;
  form.norm_eps = ReadVisionEps(config, 1e-6);
  form.attention_bias = form.out_bias = form.mlp_bias = form.down_bias = Bias::kAbsent;
  form.gated = form.qk_norm = form.v_norm = true;
  form.activation = ReadEncoderActivation(config.vision, "hidden_activation", "gelu_pytorch_tanh");
  form.scale = 1;
  UseGridRope(config, form, 100);
  form.rope_apart = plan.tower.columns_first = true;
  const weights::ModelFiles& files = config.vision.files();
  form.clipped = config.gguf() ? files.Find("v.blk.0.attn_q.input_max") != nullptr
                               : config.vision.Boolean({"use_clipped_linears", ""}, false);
  form.names = Gemma4VisionNames(config);
  plan.patches = {"patch_embedder.input_proj.weight", "patch_embd.weight"};
  plan.colors_last = true;
  plan.colors_last_in_file = !config.gguf();
  plan.tower.pixel_scale = 2;
  plan.tower.pixel_shift = -1;
  plan.tower.patches_max = 1 << 16;
  plan.grid = PositionGrid::kSum;
  plan.positions = {"patch_embedder.position_embedding_table", "position_embd.weight"};
  plan.side = config.vision.Small({"position_embedding_size", ""}, 1, 1 << 20, 10240);
  const weights::Tensor* table = config.gguf() ? files.Find("v.position_embd.weight") : nullptr;
  if (table != nullptr) plan.side = static_cast<int32_t>(std::min<int64_t>(table->rows() / 2, 1 << 20));
  ProjectorPlan& projector = plan.projector;
  projector.side = config.vision.Small({"pooling_kernel_size", "vision.projector.scale_factor"}, 1, 64, 3);
  projector.join = PatchJoin::kMean;
  projector.scale = static_cast<float>(std::sqrt(static_cast<double>(form.hidden)));
  const bool standard =
      config.gguf() ? files.Find("v.std_bias") != nullptr : config.vision.Boolean({"standardize", ""}, false);
  if (standard) {
    projector.shift = {"vision_tower.std_bias", "v.std_bias"};
    projector.stretch = {"vision_tower.std_scale", "v.std_scale"};
  }
  projector.after = {.name = {}, .kind = NormKind::kRms, .eps = form.norm_eps, .plain = true};
  projector.prefix =
      config.gguf() ? ""
                    : FindPrefix(config.model, {"model.", ""}, "embed_vision.embedding_projection.weight");
  projector.out = {"embed_vision.embedding_projection", "mm.input_projection"};
  projector.bias = Bias::kAbsent;
  config.vision.Ignore(
      {"max_position_embeddings", "default_output_length", "global_head_dim", "layer_types"});
  if (config.vision.Boolean({"attention_bias", ""}, false))
    config.vision.Fail("attention_bias is not supported");
  return plan;
}

}  // namespace quire::runner::models
