#include <fmt/format.h>

#include <string>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// GGUF files that do not name the activation are of models with SiLUs.
api::Result<std::unique_ptr<Model>> LoadBitNet(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const std::string stored = read.Text({"", "hidden_activation"}, read.gguf() ? "silu" : "relu2");
  if (stored != "silu" && stored != "relu2") {
    read.Fail(fmt::format("{} is neither silu nor relu2", read.Name({"", "hidden_activation"})));
  }
  const Activation activation = stored == "silu" ? Activation::kSilu : Activation::kSquaredRelu;
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 2048, .norm_eps = 1e-5F, .activation = activation},
                             .rope = {.default_theta = read.gguf() ? 10000.0 : 500000.0}});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.names.attention.out_norm = {"self_attn.attn_sub_norm", "attn_sub_norm"};
  form.names.mlp.norm = {"mlp.ffn_sub_norm", "ffn_sub_norm"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
