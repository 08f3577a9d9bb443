#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadMistral(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderConfig given = {.norm_eps = 1e-6F};
  if (files->architecture() == "llava") {  // Pixtral's configuration leaves out the heads
    given.heads = 32;
    given.kv_heads = 8;
  }
  const DecoderForm form = ReadDecoderForm(read, {.given = given, .given_window = read.gguf() ? 0 : 4096});
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadMinistral3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(
      read, {.given = {.head_dim = read.gguf() ? 0 : 128, .context = 262144, .norm_eps = 1e-5F},
             .rope = {.required = true, .gguf_pairs = kernels::RopePairs::kAdjacent}});
  form.query_growth = ReadQueryGrowth(read);
  // GGUF has YaRN's mscale_all_dim under this name; mscale is 1. As in config.json, 0 counts as absent.
  constexpr ConfigKey kShared = {"", "rope.scaling.yarn_log_multiplier"};
  if (const auto* shared = read.Find(kShared); shared != nullptr) {
    const double logarithm =
        0.1 * std::log(std::max(read.Positive({"", "rope.scaling.factor"}, 1e6, 1), 1.0));
    const bool absent = shared->is_number() && shared->get<double>() == 0;
    const double growth = absent ? 1 : read.Positive(kShared, 1e3) * logarithm + 1;
    form.ropes[0].magnitude = static_cast<float>(form.ropes[0].magnitude * (logarithm + 1) / growth);
  }
  return BuildDeclared(read, std::move(files), form);
}

// The text model of a multimodal checkpoint is of one of three generations; of the first if it does not say.
api::Result<std::unique_ptr<Model>> LoadMistral3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const std::string kind = read.Text({"model_type", ""}, "");
  if (kind == "ministral3") return LoadMinistral3(std::move(files));
  if (kind == "mistral4") return LoadMistral4(std::move(files));
  if (kind == "mistral" || kind == "ministral" || kind == "mistral3") return LoadMistral(std::move(files));
  read.Fail("text_config/model_type is none of \"mistral4\", \"ministral3\" and \"mistral\"");
  return std::unexpected(*read.error());
}

}  // namespace quire::runner::models
