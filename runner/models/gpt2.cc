#include <cmath>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

constexpr FormQuery kGpt2 = {.given = {.kv_heads = -1,
                                       .context = 1024,
                                       .norm = NormKind::kLayer,
                                       .norm_eps = 1e-5F,
                                       .plain_activation = PlainActivation::kGelu},
                             .tied = TiedByDefault::kYes,
                             .rope = {.default_theta = -1},
                             .given_feed_forward = 4};

// Learned positions, layer norms, biases, q, k and v in one matrix.
DecoderForm ReadGpt2(ConfigReader& read) {
  DecoderForm form = ReadDecoderForm(read, kGpt2);
  form.attention_bias = form.out_bias = form.mlp_bias = Bias::kPresent;
  form.names = {.layers = "h",
                .embedding = {"wte", "token_embd"},
                .positions = {"wpe", "position_embd"},
                .attention_norm = {"ln_1", "attn_norm"},
                .mlp_norm = {"ln_2", "ffn_norm"},
                .attention = {.out = {"attn.c_proj", "attn_output"}, .qkv = {"attn.c_attn", "attn_qkv"}},
                .mlp = {.up = {"mlp.c_fc", "ffn_up"}, .down = {"mlp.c_proj", "ffn_down"}},
                .final_norm = {"ln_f", "output_norm"}};
  if (!read.Boolean({"scale_attn_weights", ""}, true)) form.attention_scale = 1;
  // For classification, training and how a program computes the same.
  read.Ignore({"n_ctx", "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
               "reorder_and_upcast_attn", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"});
  return form;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGpt2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadGpt2(read);
  form.transposed = true;
  if (read.Boolean({"scale_attn_by_inverse_layer_idx", ""}, false)) {
    const double scale =
        form.attention_scale > 0 ? 1 : 1 / std::sqrt(static_cast<double>(form.decoder.head_dim));
    for (size_t i = 0; i < form.layers.size(); ++i) {
      form.layers[i].attention_scale = static_cast<float>(scale / static_cast<double>(i + 1));
    }
  }
  return BuildDeclared(read, std::move(files), form);
}

// One KV head, or as many as there are query heads.
api::Result<std::unique_ptr<Model>> LoadGptBigCode(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadGpt2(read);
  const int32_t heads = form.decoder.heads;
  form.decoder.kv_heads = read.Boolean({"multi_query", ""}, true) ? 1 : heads;
  if (read.gguf()) form.decoder.kv_heads = read.Small({"", "attention.head_count_kv"}, 1, kMaxHeads, heads);
  CheckHeads(read, heads, form.decoder.kv_heads, form.decoder.head_dim);
  form.names.attention.grouped = true;
  read.Ignore({"num_key_value_heads", "inference_runner", "max_batch_size", "max_sequence_length",
               "pad_key_length", "pre_allocate_kv_cache", "validate_runner_input"});
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
