#include <string_view>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

namespace {

constexpr auto kCohereRope = kernels::RopePairs::kInterleaved;
constexpr FormQuery kCohere = {
    .given = {.context = 8192, .norm = NormKind::kLayer, .norm_eps = 1e-5F},
    .tied = TiedByDefault::kYes,
    .rope = {.default_theta = 10000, .pairs = kCohereRope, .gguf_pairs = kCohereRope}};

void ReadCohere(ConfigReader& read, DecoderForm* form) {
  form->norms = NormPlaces::kParallel;
  form->attention_bias = form->out_bias = ReadBias(read, "attention_bias");
  form->logit_scale = static_cast<float>(read.Positive({"logit_scale", "logit_scale"}, 1e6, 0.0625));
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadCohere(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  FormQuery query = kCohere;
  if (!read.gguf()) query.rope.default_theta = 500000;
  DecoderForm form = ReadDecoderForm(read, query);
  ReadCohere(read, &form);
  const bool normed = read.gguf() ? files->Find("blk.0.attn_q_norm.weight") != nullptr
                                  : read.Boolean({"use_qk_norm", ""}, false);
  if (normed) form.qk_norm = QkNorm::kLayerHeads;
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadCohere2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  FormQuery query = kCohere;
  query.period = read.Small({"sliding_window_pattern|layer_switch", ""}, 1, kMaxLayers, 4);
  query.slides = [](int32_t layer, int32_t every) { return (layer + 1) % every != 0; };
  query.given_window = 4096;
  DecoderForm form = ReadDecoderForm(read, query);
  for (const std::string_view key : {"use_parallel_block", "use_gated_activation"}) read.Require(key, true);
  read.Require("position_embedding_type", "rope_gptj");
  read.Require("order_of_interleaved_layers", "local_attn_first");
  read.Ignore({"use_embedding_sharing", "use_parallel_embedding"});  // as tie_word_embeddings; for training
  ReadCohere(read, &form);
  // Positions are for the layers with a window alone.
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 0 : LayerForm::kNoRope;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
