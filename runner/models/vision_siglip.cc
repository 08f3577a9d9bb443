// SigLIP (Zhai et al. 2023) and SigLIP 2 (Tschannen et al. 2025), and what makes prompts of their states.
#include <algorithm>
#include <cmath>

#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"
#include "runner/models/vision_families.h"

namespace quire::runner::models {
namespace {

// The layers and their names. `prefixes` of a checkpoint, the newest last.
void ReadSiglip(VisionConfig& config, std::initializer_list<const char*> prefixes, VisionPlan& plan) {
  ReadVisionSizes(config, plan);
  EncoderForm& form = plan.encoder;
  form.norms = EncoderNorms::kBefore;
  form.norm_eps = ReadVisionEps(config, 1e-6);
  form.activation = ReadEncoderActivation(config.vision, "hidden_act", "gelu_pytorch_tanh");
  EncoderNames& names = form.names;
  names.prefix = config.gguf() ? "v." : FindPrefix(config.vision, prefixes, "post_layernorm.weight");
  names.layers = "encoder.layers.";
  names.q = {"self_attn.q_proj", "attn_q"};
  names.k = {"self_attn.k_proj", "attn_k"};
  names.v = {"self_attn.v_proj", "attn_v"};
  names.out = {"self_attn.out_proj", config.blob ? "attn_output" : "attn_out"};
  names.attention_norm = {"layer_norm1", config.blob ? "layer_norm1" : "ln1"};
  names.mlp_norm = {"layer_norm2", config.blob ? "layer_norm2" : "ln2"};
  names.up = {"mlp.fc1", config.blob ? "mlp.fc1" : "ffn_up"};
  names.down = {"mlp.fc2", config.blob ? "mlp.fc2" : "ffn_down"};
  names.final_norm = {"post_layernorm", config.blob ? "post_layernorm" : "post_ln"};
  plan.patches = {"embeddings.patch_embedding.weight",
                  config.blob ? "patch_embedding.weight" : "patch_embd.weight"};
  plan.patch_bias = {"embeddings.patch_embedding.bias",
                     config.blob ? "patch_embedding.bias" : "patch_embd.bias"};
  plan.positions = {"embeddings.position_embedding.weight",
                    config.blob ? "position_embedding.weight" : "position_embd.weight"};
}

}  // namespace

// Gemma 3 (Gemma Team 2025): the mean of squares of patches, an RMS norm, a matrix.
VisionPlan ReadGemma3Vision(VisionConfig& config) {
  VisionPlan plan;
  ReadSiglip(config,
             {"vision_tower.vision_model.", "model.vision_tower.vision_model.", "vision_tower.",
              "model.vision_tower."},
             plan);
  const int32_t image = config.vision.Small({"image_size", "vision.image_size"}, 1, 1 << 14, 224);
  plan.grid = PositionGrid::kSame;
  plan.side = plan.tower.side_of_tile = image / plan.tower.patch;
  plan.tower.patches_max = plan.side * plan.side;
  ProjectorPlan& projector = plan.projector;
  const bool scaled = config.gguf() && config.vision.Find({"", "vision.projector.scale_factor"}) != nullptr;
  if (scaled) {
    projector.side = config.vision.Small({"", "vision.projector.scale_factor"}, 1, 64);
  } else {
    const auto tokens = config.model.Small({"mm_tokens_per_image", "mm.tokens_per_image"}, 1, 1 << 20, 256);
    projector.side =
        std::max(plan.side / std::max(static_cast<int32_t>(std::sqrt(static_cast<double>(tokens))), 1), 1);
  }
  projector.prefix =
      config.gguf() ? "mm."
                    : FindPrefix(config.model, {"multi_modal_projector.", "model.multi_modal_projector."},
                                 "mm_input_projection_weight");
  projector.join = PatchJoin::kMean;
  projector.after.name = {"mm_soft_emb_norm", config.blob ? "mm_soft_emb_norm" : "soft_emb_norm"};
  projector.after.kind = NormKind::kZeroCenteredRms;
  projector.after.eps = plan.encoder.norm_eps;
  projector.out = {"mm_input_projection_weight",
                   config.blob ? "mm_input_projection.weight" : "input_projection.weight"};
  projector.out_is_turned = true;
  return plan;
}

// LFM2-VL (Liquid AI 2025): SigLIP 2 with images of any shape; squares of patches, a norm, two layers.
VisionPlan ReadLfm2Vision(VisionConfig& config) {
  VisionPlan plan;
  config.blob = false;  // the names are those of an mmproj file
  ReadSiglip(config,
             {"model.vision_tower.vision_model.", "vision_tower.vision_model.", "vision_tower.",
              "model.vision_tower."},
             plan);
  const auto patches = config.vision.Small({"num_patches", ""}, 1, 1 << 20, 256);
  plan.grid = PositionGrid::kAntialiased;
  plan.side = SideOfTable(config, "v.position_embd.weight",
                          static_cast<int32_t>(std::sqrt(static_cast<double>(patches))));
  plan.colors_last = true;
  plan.colors_last_in_file = !config.gguf();
  plan.tower.patches_max = 1 << 16;
  ProjectorPlan& projector = plan.projector;
  projector.side = config.model.Small({"downsample_factor", "vision.projector.scale_factor"}, 1, 16, 2);
  projector.prefix =
      config.gguf() ? "mm."
                    : FindPrefix(config.model, {"model.multi_modal_projector.", "multi_modal_projector."},
                                 "linear_1.weight");
  const bool gguf_norm = config.gguf() && config.vision.files().Find("mm.layer_norm.weight") != nullptr;
  const bool normed = config.gguf()
                          ? gguf_norm || config.vision.files().Find("mm.input_norm.weight") != nullptr
                          : config.model.Boolean({"projector_use_layernorm", ""}, true);
  if (normed) projector.after.name = {"layer_norm", gguf_norm ? "layer_norm" : "input_norm"};
  projector.after.eps = 1e-5F;
  projector.first = {"linear_1", "1"};
  projector.out = {"linear_2", "2"};
  projector.inner = RowsOfTensor(config, "mm.1.weight",
                                 config.model.Small({"projector_hidden_size", ""}, 1, kMaxWidth, 2560));
  projector.activation = ReadEncoderActivation(config.model, "projector_hidden_act", "gelu");
  const bool bias = config.model.Boolean({"projector_bias", ""}, true);
  projector.bias = config.gguf() ? Bias::kIfStored : bias ? Bias::kPresent : Bias::kAbsent;
  return plan;
}

// Idefics3 (Laurencon et al. 2024) and SmolVLM (Marafioti et al. 2025): squares of patches, a matrix.
VisionPlan ReadIdefics3Vision(VisionConfig& config) {
  VisionPlan plan;
  ReadSiglip(config, {"model.vision_model.", "vision_model.", "model.vision_tower."}, plan);
  const int32_t image = config.vision.Small({"image_size", "vision.image_size"}, 1, 1 << 14, 224);
  plan.grid = PositionGrid::kBuckets;
  plan.side = SideOfTable(config, "v.position_embd.weight", image / plan.tower.patch);
  plan.tower.patches_max = 1 << 16;
  ProjectorPlan& projector = plan.projector;
  projector.side = config.model.Small({"scale_factor", "vision.projector.scale_factor"}, 1, 16, 2);
  projector.prefix = config.gguf() ? "mm."
                                   : FindPrefix(config.model, {"model.connector.", "connector."},
                                                "modality_projection.proj.weight");
  projector.out = {"modality_projection.proj", "model.fc"};
  projector.bias = Bias::kAbsent;
  return plan;
}

}  // namespace quire::runner::models
