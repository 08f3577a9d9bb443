// Families of which GGUF files alone are read: the code of their checkpoints is in no library.
#include <cmath>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

constexpr auto kPermuted = kernels::RopePairs::kAdjacent;

// Biases are those that are stored.
DecoderForm ReadOlder(ConfigReader& read, const DecoderConfig& given, RopeQuery rope) {
  if (rope.default_theta == 0) rope.default_theta = 10000;
  DecoderForm form = ReadDecoderForm(read, {.given = given, .rope = rope});
  form.attention_bias = form.out_bias = form.mlp_bias = Bias::kIfStored;
  form.names.attention.qkv = {"", "attn_qkv"};
  return form;
}

}  // namespace

// Experts beside the feed-forward layer.
api::Result<std::unique_ptr<Model>> LoadArctic(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(read, {.rope = {.default_theta = 10000, .gguf_pairs = kPermuted}}, {});
  form.feed_forward = form.decoder.hidden;
  form.mixture.beside_norm = {"", "ffn_norm_exps"};
  return BuildDeclared(read, std::move(files), form);
}

// Which of the two models a file is, only the number of its layers says.
api::Result<std::unique_ptr<Model>> LoadBaichuan(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int64_t layers = read.Integer({"", "block_count"}, 1, kMaxLayers);
  const bool rotated = layers == 32;
  if (!rotated && layers != 40) read.Fail("baichuan.block_count: only 32 (7B) and 40 (13B) are supported");
  DecoderForm form =
      ReadOlder(read, {}, rotated ? RopeQuery{.gguf_pairs = kPermuted} : RopeQuery{.default_theta = -1});
  if (!rotated) form.alibi = 8;
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadCodeShell(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const DecoderForm form =
      ReadOlder(read, {.norm = NormKind::kLayer, .plain_activation = PlainActivation::kGelu}, {});
  return BuildDeclared(read, std::move(files), form);
}

// Grok 1: scores are capped, and norms are around both parts.
api::Result<std::unique_ptr<Model>> LoadGrok(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(
      read, {.given = {.activation = Activation::kGelu}, .rope = {.default_theta = 10000}}, {});
  const auto number = [&](const char* key, double given) {
    return static_cast<float>(read.Positive({"", key}, 1e6, given));
  };
  form.norms = NormPlaces::kAround;
  form.embedding_scale = number("embedding_scale", 78.38367176906169);
  form.logit_scale = number("logit_scale", 0.5773502691896257);
  form.attention_scale = number("attention.output_scale", 0.08838834764831845);
  form.score_cap = number("attn_logit_softcapping", 30);
  form.attention_bias = form.out_bias = Bias::kIfStored;
  form.names.post_attention_norm = {"", "attn_output_norm"};
  const bool early = files->Find("blk.0.layer_output_norm.weight") != nullptr;
  form.names.post_mlp_norm = {"", early ? "layer_output_norm" : "post_ffw_norm"};
  if (files->Find("blk.0.ffn_up.weight") != nullptr) read.Fail("tensor blk.0.ffn_up.weight is not supported");
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadJais(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlder(read, {.norm = NormKind::kLayer}, {.default_theta = -1});
  form.alibi = static_cast<float>(read.Positive({"", "attention.max_alibi_bias"}, 1e3, 8));
  form.attention_scale = 1 / static_cast<float>(form.decoder.head_dim);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadMaincoder(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // The norms' weights are in the order of the rows.
  DecoderForm form = ReadOlder(read, {}, {.gguf_pairs = kernels::RopePairs::kInterleaved});
  form.qk_norm = QkNorm::kRotatedHeads;
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadMiniCpm(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlder(read, {}, {.gguf_pairs = kPermuted});
  form.embedding_scale = static_cast<float>(read.Positive({"", "embedding_scale"}, 1e6));
  form.residual_scale = static_cast<float>(read.Positive({"", "residual_scale"}, 1e6));
  form.logit_scale = static_cast<float>(1 / read.Positive({"", "logit_scale"}, 1e6));
  return BuildDeclared(read, std::move(files), form);
}

// Llama whose layers run several times.
api::Result<std::unique_ptr<Model>> LoadNanbeige(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlder(read, {}, {.gguf_pairs = kPermuted});
  form.loops = read.Small({"", "num_loops"}, 1, kMaxLayers / form.decoder.layers, 1);
  form.loop_norm = !read.Boolean({"", "skip_loop_final_norm"}, false);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadOrion(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const DecoderForm form = ReadOlder(read, {.norm = NormKind::kLayer}, {});
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadPanguEmbedded(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const DecoderForm form = ReadOlder(read, {.head_bias = Bias::kIfStored}, {});
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadPlamo(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlder(read, {}, {});
  form.norms = NormPlaces::kParallel;
  return BuildDeclared(read, std::move(files), form);
}

// Latent attention and plain feed-forward layers.
api::Result<std::unique_ptr<Model>> LoadPlm(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form{
      .decoder = ReadDecoderConfig(
          read, {.kv_heads = -1, .head_dim = -1, .plain_activation = PlainActivation::kSquaredRelu}),
      .feed_forward = ReadFeedForward(read)};
  form.layers.resize(static_cast<size_t>(form.decoder.layers));
  form.latent = ReadLatentAttention(read, form.decoder.heads);
  form.ropes.push_back(
      ReadRope(read, {.head_dim = form.latent->rotary, .default_theta = 10000, .gguf_pairs = kPermuted}));
  // That of the latent's norm, too.
  if (form.decoder.norm_eps != 1e-6F) {
    read.Fail("plm.attention.layer_norm_rms_epsilon: only 1e-6 is supported");
  }
  return BuildDeclared(read, std::move(files), form);
}

// The key of the feed-forward layers' width counts gate and up together.
api::Result<std::unique_ptr<Model>> LoadQwen(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlder(read, {}, {});
  form.feed_forward /= 2;
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadRefact(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlder(read, {}, {.default_theta = -1});
  form.alibi = 8;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
