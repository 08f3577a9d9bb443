#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

constexpr RopeQuery kPlainRope = {.default_theta = 10000};

// The text models of Qwen-VL have a rotary embedding whose positions are those of a grid.
DecoderForm ReadQwen(ConfigReader& read, const RopeQuery& rope = kPlainRope) {
  const int32_t first = read.Small({"max_window_layers", ""}, 0, kMaxLayers, 28);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.norm_eps = 1e-6F},
                             .rope = rope,
                             .slides = [](int32_t layer, int32_t from) { return layer >= from; },
                             .period = first,
                             .given_window = 4096});
  // Published models carry a window that they do not use; where one is used, the first layers still see
  // everything.
  if (!read.Boolean({"use_sliding_window", ""}, false)) {
    for (LayerForm& layer : form.layers) layer.window = 0;
  }
  return form;
}

void ReadQwen3(ConfigReader& read, DecoderForm* form) {
  form->qk_norm = QkNorm::kHeads;
  const bool biased = read.Boolean({"attention_bias", ""}, false);
  form->attention_bias = form->out_bias = biased ? Bias::kPresent : Bias::kAbsent;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadQwen2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadQwen(read);
  form.attention_bias = Bias::kPresent;
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadQwen2Vl(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadQwen(
      read, {.default_theta = 1e6, .sections = RopeSections::kContiguous, .given_sections = {16, 24, 24}});
  form.attention_bias = Bias::kPresent;
  read.Ignore({"vision_config"});  // of a configuration without a text_config
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadQwen3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadQwen(read);
  ReadQwen3(read, &form);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadQwen3Vl(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadQwen(
      read, {.default_theta = 5e5, .sections = RopeSections::kInterleaved, .given_sections = {24, 20, 20}});
  ReadQwen3(read, &form);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
