#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// A GGUF has xIELU's numbers as keys without the architecture before them: a list with one per layer, or one
// for all.
std::vector<float> ReadXieluKey(ConfigReader& read, const char* key, size_t layers) {
  std::vector<float> values(layers, 0);
  const auto& config = read.files().config();
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    read.Fail(fmt::format("the configuration lacks {}", key));
    return values;
  }
  const bool listed = found->is_array();
  if (listed && found->size() != layers) {
    read.Fail(fmt::format("{} is not a list of {} entries, one per layer", key, layers));
    return values;
  }
  for (size_t i = 0; i < layers; ++i) {
    const auto& value = listed ? (*found)[i] : *found;
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(std::abs(number) <= std::numeric_limits<float>::max())) {
      read.Fail(fmt::format("{} has an entry that is not a finite number", key));
      return values;
    }
    values[i] = static_cast<float>(number);
  }
  return values;
}

std::vector<kernels::XieluShape> ReadXielu(ConfigReader& read, size_t layers) {
  const std::vector<float> alpha_p = ReadXieluKey(read, "xielu.alpha_p", layers);
  const std::vector<float> alpha_n = ReadXieluKey(read, "xielu.alpha_n", layers);
  const std::vector<float> beta = ReadXieluKey(read, "xielu.beta", layers);
  const std::vector<float> eps = ReadXieluKey(read, "xielu.eps", layers);
  std::vector<kernels::XieluShape> shapes;
  for (size_t i = 0; i < layers; ++i) shapes.push_back(MakeXielu(alpha_p[i], alpha_n[i], beta[i], eps[i]));
  return shapes;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadApertus(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(
      read, {.given = {.context = 65536, .norm_eps = 1e-5F, .plain_activation = PlainActivation::kXielu},
             .rope = {.default_theta = 12e6, .required = true}});
  read.Require("qk_norm", true);
  form.qk_norm = QkNorm::kHeads;
  form.names.attention_norm = {"attention_layernorm", "attn_norm"};
  form.names.mlp_norm = {"feedforward_layernorm", "ffn_norm"};
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  if (read.gguf() && !read.error()) form.xielu = ReadXielu(read, form.layers.size());
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
