#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

DecoderForm ReadOlmoe(ConfigReader& read, double theta) {
  DecoderForm form = ReadMixtureForm(read, {.given = {.norm_eps = 1e-5F}, .rope = {.default_theta = theta}},
                                     {.normalize = false});
  form.qk_norm = QkNorm::kRow;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  return form;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadOlmoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlmoe(read, 10000);
  constexpr ConfigKey kClip = {"clip_qkv", "attention.clamp_kqv"};
  if (read.Find(kClip) != nullptr) form.clip_qkv = static_cast<float>(read.Positive(kClip, 1e6));
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadFlexOlmo(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadOlmoe(read, 500000);
  form.norms = NormPlaces::kAfter;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
