#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

FormQuery ErnieQuery(int32_t head_dim) {
  constexpr auto kInterleaved = kernels::RopePairs::kInterleaved;
  return {.given = {.head_dim = head_dim, .norm_eps = 1e-5F},
          .tied = TiedByDefault::kYes,
          .rope = {.default_theta = 500000, .pairs = kInterleaved, .gguf_pairs = kInterleaved}};
}

void ReadErnie(ConfigReader& read, DecoderForm* form) {
  read.Require("compression_ratio", 1.0);
  read.Require("use_rmsnorm", true);
  form->attention_bias = form->out_bias = form->mlp_bias = ReadBias(read, "use_bias");
}

// Every moe_layer_interval-th layer from moe_layer_start_index to moe_layer_end_index has experts, -1 being
// the last.
std::vector<bool> ReadErnieSparse(ConfigReader& read, int32_t layers) {
  const int32_t first = read.Small({"moe_layer_start_index", ""}, 0, kMaxLayers, 1);
  const int64_t last = read.Integer({"moe_layer_end_index", ""}, -1, kMaxLayers, -1);
  const int32_t every = read.Small({"moe_layer_interval", ""}, 1, kMaxLayers, 1);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (int32_t i = first; i < layers && (last < 0 || i <= last); ++i) {
    sparse[static_cast<size_t>(i)] = (i + 1) % every == 0;
  }
  return sparse;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadErnie45(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, ErnieQuery(read.gguf() ? 0 : 128));
  ReadErnie(read, &form);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadErnie45Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  FormQuery query = ErnieQuery(0);
  if (read.Boolean({"use_bias", ""}, false)) query.given.head_bias = Bias::kIfStored;
  DecoderForm form = ReadMixtureForm(read, query, {.normalize = true, .shared = 2, .as_stored = true});
  ReadErnie(read, &form);
  MixtureConfig& mixture = form.mixture.config;
  if (!read.gguf()) {
    mixture.choice_bias = true;
    mixture.sparse = ReadErnieSparse(read, form.decoder.layers);
    form.feed_forward = ReadFeedForward(read);
  }
  // The least sum that weights are divided by: far below any, or one more rule.
  if (read.Positive({"moe_norm_min", ""}, 1, 1e-12) > 1e-9)
    read.Fail("moe_norm_min: only 1e-9 and less are supported");
  read.Require("moe_gate", "topk");
  read.Require("moe_use_aux_free", true);
  read.Require("moe_gate_act", "softmax");
  read.Ignore({"moe_capacity", "multi_token_pred_lambda", "max_sequence_length"});  // of training
  form.mixture.names.choice_bias = {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
