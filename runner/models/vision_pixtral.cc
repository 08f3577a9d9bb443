// Pixtral (Agrawal et al. 2024) and Mistral Small 3.1: layers of Llama whose patches see each other.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/decoder_config.h"
#include "runner/models/encoder_families.h"
#include "runner/models/vision_families.h"

namespace quire::runner::models {
namespace {

// Rows have every second of the frequencies, and columns the others.
RopeSpec InterleavedGridRope(VisionConfig& config, int32_t head_dim) {
  const double theta = ReadVisionTheta(config, 10000);
  RopeSpec rope;
  for (int32_t axis = 0; axis < 2; ++axis) {
    for (int32_t i = axis; i < head_dim / 2; i += 2) {
      rope.frequencies.push_back(static_cast<float>(std::pow(theta, -2.0 * i / head_dim)));
    }
  }
  // An mmproj file has the rows of a head in another order.
  if (config.gguf() && !config.blob) rope.pairs = kernels::RopePairs::kInterleaved;
  return rope;
}

EncoderActivation ReadPixtralActivation(VisionConfig& config) {
  if (!config.gguf()) return ReadEncoderActivation(config.vision, "hidden_act", "gelu");
  const bool gelu = config.vision.Boolean({"", "use_gelu"}, false);
  return gelu ? EncoderActivation::kGeluErf : EncoderActivation::kSilu;
}

EncoderNames PixtralNames(VisionConfig& config) {
  EncoderNames names;
  names.prefix = config.gguf() ? "v."
                               : FindPrefix(config.vision, {"vision_tower.", "model.vision_tower."},
                                            "patch_conv.weight");
  names.layers = "transformer.layers.";
  names.embedding_norm = {"ln_pre", config.blob ? "encoder_norm" : "pre_ln"};
  names.q = {"attention.q_proj", "attn_q"};
  names.k = {"attention.k_proj", "attn_k"};
  names.v = {"attention.v_proj", "attn_v"};
  names.out = {"attention.o_proj", config.blob ? "attn_output" : "attn_out"};
  names.attention_norm = {"attention_norm", config.blob ? "attn_norm" : "ln1"};
  names.mlp_norm = {"ffn_norm", config.blob ? "ffn_norm" : "ln2"};
  names.gate = {"feed_forward.gate_proj", "ffn_gate"};
  names.up = {"feed_forward.up_proj", "ffn_up"};
  names.down = {"feed_forward.down_proj", "ffn_down"};
  return names;
}

void ReadPixtralProjector(VisionConfig& config, VisionPlan& plan) {
  ProjectorPlan& projector = plan.projector;
  projector.prefix =
      config.gguf() ? "mm."
                    : FindPrefix(config.model, {"multi_modal_projector.", "model.multi_modal_projector."},
                                 "linear_1.weight");
  const weights::ModelFiles& files = config.vision.files();
  const bool merges = config.gguf() ? files.Find("mm.patch_merger.weight") != nullptr || config.blob
                                    : config.model.files().architecture() == "mistral3";
  if (merges) {
    projector.side =
        config.model.Small({"spatial_merge_size", "spatial_merge_size|vision.spatial_merge_size"}, 1, 16, 2);
    projector.join = PatchJoin::kByValue;
    projector.before.name = {"norm", config.blob ? "norm" : "input_norm"};
    projector.before.kind = NormKind::kRms;
    // The text model's; an mmproj file does not know it.
    projector.before.eps = static_cast<float>(
        config.model.Positive({"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 1, 1e-5));
    projector.fold = {"patch_merger.merging_layer",
                      config.blob ? "patch_merger.merging_layer" : "patch_merger"};
  }
  projector.first = {"linear_1", config.blob ? "linear_1" : "1"};
  projector.out = {"linear_2", config.blob ? "linear_2" : "2"};
  projector.activation = ReadEncoderActivation(config.model, "projector_hidden_act", "gelu");
  const bool bias = config.model.Boolean({"multimodal_projector_bias", ""}, !merges);
  projector.bias = config.gguf() ? Bias::kIfStored : bias ? Bias::kPresent : Bias::kAbsent;
}

}  // namespace

VisionPlan ReadPixtralVision(VisionConfig& config) {
  VisionPlan plan;
  if (config.model.Text({"vision_config/model_type", ""}, "pixtral") != "pixtral") {
    config.model.Fail("vision_config: only the model_type \"pixtral\" is supported");
  }
  const auto* layer = config.model.Find({"vision_feature_layer", ""});
  if (layer != nullptr && *layer != -1 && *layer != nlohmann::ordered_json::array({-1})) {
    config.model.Fail("vision_feature_layer: only -1 is supported");
  }
  ReadVisionSizes(config, plan);
  EncoderForm& form = plan.encoder;
  form.norm = NormKind::kRms;
  form.norms = EncoderNorms::kBefore;
  form.norm_eps = 1e-5F;
  form.attention_bias = form.out_bias = form.mlp_bias = form.down_bias = Bias::kAbsent;
  form.gated = true;
  form.activation = ReadPixtralActivation(config);
  if (form.head_dim % 4 != 0) config.vision.Fail("heads are not a multiple of 4 wide");
  form.rope_axes = 2;
  form.ropes.push_back(InterleavedGridRope(config, form.head_dim));
  form.rope_of.assign(static_cast<size_t>(form.layers), 0);
  form.names = PixtralNames(config);
  plan.patches = {"patch_conv.weight", config.blob ? "patch_conv.weight" : "patch_embd.weight"};
  plan.tower.patches_max = 1 << 16;
  ReadPixtralProjector(config, plan);
  config.vision.Ignore({"image_size", "head_dim", "vocab_size"});
  return plan;
}

}  // namespace quire::runner::models
