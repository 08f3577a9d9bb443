#include <string>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

void NameBailing(DecoderForm* form) {
  BlockNames& names = form->names;
  names.embedding = {"word_embeddings", "token_embd"};
  names.attention.qkv = {"attention.query_key_value", "attn_qkv"};
  names.attention.out = {"attention.dense", "attn_output"};
  names.attention.q_norm = {"attention.query_layernorm", "attn_q_norm"};
  names.attention.k_norm = {"attention.key_layernorm", "attn_k_norm"};
  form->mixture.names.choice_bias = {"mlp.gate.expert_bias", "exp_probs_b.bias"};
}

MixtureConfig::Score ReadBailingScore(ConfigReader& read, bool second) {
  using Score = MixtureConfig::Score;
  const std::string name = read.Text({"score_function", ""}, second ? "sigmoid" : "softmax");
  if (name != "softmax" && name != "sigmoid") read.Fail("score_function is neither softmax nor sigmoid");
  return name == "sigmoid" ? Score::kSigmoid : Score::kSoftmax;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadBailingMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // Version 2 can have version 1's model_type; Sarvam's is its own, and its heads rotate as a whole.
  const bool sarvam = files->architecture() == "sarvam_moe";
  const bool second = sarvam || files->architecture() == "bailingmoe2";
  DecoderForm form = ReadMixtureForm(
      read,
      {.given = {.head_dim = sarvam ? 64 : 0, .norm_eps = 1e-6F},
       .rope = {.default_theta = sarvam ? 8e6 : 10000,
                .partial_allowed = true,
                .gguf_pairs = second ? kernels::RopePairs::kHalves : kernels::RopePairs::kAdjacent}},
      {.score = ReadBailingScore(read, second), .normalize = true, .shared = 1, .as_stored = true});
  MixtureConfig& mixture = form.mixture.config;
  if (!read.gguf()) {
    mixture.choice_bias = read.Boolean({"moe_router_enable_expert_bias", ""}, sarvam);
    read.Require("moe_shared_expert_intermediate_size", static_cast<double>(mixture.width));
  }
  const bool head_norms = read.gguf() ? files->Find("blk.0.attn_q_norm.weight") != nullptr
                                      : read.Boolean({"use_qk_norm", ""}, sarvam);
  if (head_norms) form.qk_norm = QkNorm::kHeads;
  form.attention_bias = ReadBias(read, "use_qkv_bias|attention_bias");
  form.out_bias = form.mlp_bias = ReadBias(read, "use_bias");
  form.mtp_layers = 0;  // they are left out
  for (const char* key : {"norm_head", "norm_softmax", "multi_gate", "use_sliding_window"}) {
    read.Require(key, false);
  }
  read.Require("use_rmsnorm", true);
  // Said twice, for training, or without a meaning.
  read.Ignore({"rotary_dim", "router_dtype", "max_window_layers", "sliding_window", "mtp_loss_scaling_factor",
               "moe_router_topk_scaling_factor"});
  NameBailing(&form);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
