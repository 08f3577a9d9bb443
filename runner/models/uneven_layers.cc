// Families of which GGUF files alone are read and whose layers differ in size: OpenELM, and what Deci's
// search makes of a Llama. Some of its layers have no attention, a matrix in its place or no feed-forward
// layer.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/decoder.h"
#include "runner/models/decoder_form.h"
#include "runner/models/families.h"
#include "runner/models/residual.h"

namespace quire::runner::models {
namespace {

struct UnevenForm {
  DecoderConfig decoder = {};
  RopeSpec rope = {};
  QkNorm qk_norm = QkNorm::kNone;
  std::vector<int64_t> heads = {}, kv_heads = {},
                       widths = {};  // [layers]; no heads, no KV heads, no width: see above
};

// What a layer does not have is without weights.
struct UnevenBlock {
  RmsNorm attention_norm, mlp_norm;
  Attention attention;
  Linear matrix;
  GatedMlp mlp;
};

class UnevenDecoder final : public Decoder {
 public:
  UnevenDecoder(std::shared_ptr<const weights::ModelFiles> files, TensorBinder& bind, const UnevenForm& form)
      : Decoder(std::move(files), form.decoder), rotary_(form.rope) {
    BindEmbedding(bind);
    for (size_t i = 0; i < form.heads.size() && !bind.error(); ++i) BindBlock(bind.Layer(i), form, i);
    BindHead(bind);
  }

  void SetContext(int64_t tokens) override { rotary_.SetContext(tokens); }

 private:
  size_t layers() const override { return blocks_.size(); }

  void BindBlock(const TensorScope& scope, const UnevenForm& form, size_t i) {
    const int32_t hidden = config().hidden;
    UnevenBlock block;
    if (form.heads[i] > 0) block.attention_norm = BindNorm(scope, {"", "attn_norm"}, hidden);
    if (form.heads[i] > 0 && form.kv_heads[i] > 0) {
      block.attention = BindAttention(scope,
                                      {.heads = static_cast<int32_t>(form.heads[i]),
                                       .kv_heads = static_cast<int32_t>(form.kv_heads[i]),
                                       .head_dim = config().head_dim,
                                       .qk_norm = form.qk_norm,
                                       .bias = Bias::kIfStored,
                                       .out_bias = Bias::kIfStored,
                                       .decoder_layer = static_cast<int32_t>(i)},
                                      &rotary_, {.qkv = {"", "attn_qkv"}});
    } else if (form.heads[i] > 0) {
      block.matrix = scope.BindLinear({"", "attn_output"}, hidden, hidden);
    }
    if (form.widths[i] > 0) {
      block.mlp_norm = BindNorm(scope, {"", "ffn_norm"}, hidden);
      block.mlp = BindMlp(scope, static_cast<int32_t>(form.widths[i]), {}, Bias::kIfStored);
    }
    blocks_.push_back(std::move(block));
  }

  void PrepareForward(ForwardContext& ctx, std::span<const float>) override { rotary_.Prepare(ctx); }

  void RunLayer(ForwardContext& ctx, size_t layer, std::span<float> h) override {
    const UnevenBlock& block = blocks_[layer];
    if (block.matrix) {
      AddPreNormResidual(ctx, block.attention_norm, h,
                         [&](auto x, auto y) { block.matrix.Run(ctx.pool, ctx.Input(x), y); });
    } else if (block.attention_norm) {
      AddPreNormResidual(ctx, block.attention_norm, h,
                         [&](auto x, auto y) { block.attention.Run(ctx, x, y); });
    }
    if (block.mlp_norm) {
      AddPreNormResidual(ctx, block.mlp_norm, h, [&](auto x, auto y) { block.mlp.Run(ctx, x, y); });
    }
  }

  RotaryEmbedding rotary_;
  std::vector<UnevenBlock> blocks_;
};

UnevenForm ReadUneven(ConfigReader& read, int32_t least, RopeQuery rope) {
  UnevenForm form{.decoder = ReadDecoderConfig(read, {.heads = -1, .kv_heads = -1, .head_dim = -1})};
  DecoderConfig& decoder = form.decoder;
  const auto sizes = [&](const char* key, int64_t most) {
    return read.Integers({"", key}, decoder.layers, least, most);
  };
  form.heads = sizes("attention.head_count", kMaxHeads);
  form.kv_heads = sizes("attention.head_count_kv", kMaxHeads);
  form.widths = sizes("feed_forward_length", kMaxWidth);
  const auto most = std::max<int32_t>(static_cast<int32_t>(std::ranges::max(form.heads)), 1);
  decoder.heads = most;
  decoder.head_dim = read.Small({"", "attention.key_length"}, 2, kMaxWidth, decoder.hidden / most);
  for (size_t i = 0; i < form.heads.size(); ++i) {
    const auto heads = static_cast<int32_t>(form.heads[i]), kv_heads = static_cast<int32_t>(form.kv_heads[i]);
    if (heads > 0 && kv_heads > 0) CheckHeads(read, heads, kv_heads, decoder.head_dim);
    // llama.cpp leaves out what attention adds there; published models have none.
    if (heads > 0 && form.widths[i] == 0) {
      read.Fail(fmt::format("{}[{}] is 0, and the layer has attention: this is not supported",
                            read.Name({"", "feed_forward_length"}), i));
    }
  }
  rope.head_dim = decoder.head_dim;
  form.rope = ReadRope(read, rope);
  return form;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadOpenElm(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  UnevenForm form = ReadUneven(read, 1, {.default_theta = 10000});
  form.qk_norm = QkNorm::kHeads;
  return BuildModel<UnevenDecoder>(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadDeci(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const UnevenForm form =
      ReadUneven(read, 0, {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent});
  return BuildModel<UnevenDecoder>(read, std::move(files), form);
}

}  // namespace quire::runner::models
