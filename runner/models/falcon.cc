#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// The order of norms: that of 7B, that of 40B with two norms, or one part after the other.
void ReadFalconNorms(ConfigReader& read, bool newer, DecoderForm* form) {
  BlockNames& names = form->names;
  const int32_t norms = read.Small({"num_ln_in_parallel_attn", ""}, 1, 2, newer ? 2 : 1);
  const bool parallel = read.Boolean({"parallel_attn", ""}, true);
  if (newer && !parallel) read.Fail("parallel_attn: only true is supported with new_decoder_architecture");
  if (!newer && norms == 2) {
    read.Fail("num_ln_in_parallel_attn: only 1 is supported without new_decoder_architecture");
  }
  const bool two = read.gguf() ? read.files().Find("blk.0.attn_norm_2.weight") != nullptr : norms == 2;
  if (two) {
    form->norms = NormPlaces::kBeside;
    names.attention_norm = {"ln_attn", "attn_norm_2"};
    names.mlp_norm = {"ln_mlp", "attn_norm"};
  } else if (parallel) {
    form->norms = NormPlaces::kParallel;
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadFalcon(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.kv_heads = -1,
                                                      .context = 2048,
                                                      .norm = NormKind::kLayer,
                                                      .norm_eps = 1e-5F,
                                                      .plain_activation = PlainActivation::kGeluErf},
                                            .tied = TiedByDefault::kYes,
                                            .given_feed_forward = 4});
  const int32_t heads = form.decoder.heads;
  const bool newer = read.Boolean({"new_decoder_architecture", ""}, false);
  const bool one = !read.gguf() && !newer && read.Boolean({"multi_query", ""}, true);
  form.decoder.kv_heads =
      read.Small({"num_kv_heads|n_head_kv", "attention.head_count_kv"}, 1, kMaxHeads, heads);
  if (one) form.decoder.kv_heads = 1;
  CheckHeads(read, heads, form.decoder.kv_heads, form.decoder.head_dim);
  read.Require("alibi", false);  // in transformers, its two kinds of attention differ then
  read.Require("apply_residual_connection_post_layernorm", false);
  read.Ignore({"ff_factor", "multi_query"});
  form.attention_bias = form.out_bias = form.mlp_bias = ReadBias(read, "bias");
  form.names = {.layers = "h",
                .embedding = {"word_embeddings", "token_embd"},
                .attention = {.out = {"self_attention.dense", "attn_output"},
                              .qkv = {"self_attention.query_key_value", "attn_qkv"},
                              .grouped = true},
                .mlp = {.up = {"mlp.dense_h_to_4h", "ffn_up"}, .down = {"mlp.dense_4h_to_h", "ffn_down"}},
                .final_norm = {"ln_f", "output_norm"}};
  ReadFalconNorms(read, newer, &form);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
