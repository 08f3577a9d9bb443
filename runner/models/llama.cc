#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadLlama(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  if (read.Find({"", "expert_count"}) != nullptr) return LoadMixtral(std::move(files));
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 2048, .norm_eps = 1e-6F},
                             .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  // Idefics 3 and SmolVLM repeat what is of their connector, or of earlier ones.
  if (read.Says("perceiver_config") || read.Says("pixel_shuffle_factor")) {
    read.Require("qk_layer_norms", false);
    read.Require("use_resampler", false);
    read.Require("rope_interleaved", false);
    read.Ignore({"perceiver_config", "pixel_shuffle_factor", "transformers.js_config"});
  }
  return BuildDeclared(read, std::move(files), form);
}

// Helium: rotated pairs lie side by side.
api::Result<std::unique_ptr<Model>> LoadHelium(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.head_dim = 128, .context = 4096, .norm_eps = 1e-8F},
                             .rope = {.default_theta = 100000, .pairs = kernels::RopePairs::kInterleaved}});
  form.attention_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

// EXAONE 3: its GGUF files have the rows of its checkpoints.
api::Result<std::unique_ptr<Model>> LoadExaone(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const int32_t layers = read.Small({"num_layers", ""}, 0, kMaxLayers, 0);
  DecoderForm form = ReadDecoderForm(
      read, {.given = {.layers = layers, .context = 4096, .norm_eps = 1e-5F},
             .rope = {.default_theta = read.gguf() ? 10000.0 : 500000.0, .partial_allowed = read.gguf()}});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  // Saved as a Llama, a checkpoint has its names.
  if (!read.gguf() && files->Find("transformer.wte.weight") != nullptr) {
    form.names = {.layers = "h",
                  .embedding = {"wte", ""},
                  .attention_norm = {"ln_1", ""},
                  .mlp_norm = {"ln_2", ""},
                  .attention = {.q = {"attn.attention.q_proj", ""},
                                .k = {"attn.attention.k_proj", ""},
                                .v = {"attn.attention.v_proj", ""},
                                .out = {"attn.attention.out_proj", ""}},
                  .mlp = {.gate = {"mlp.c_fc_0", ""}, .up = {"mlp.c_fc_1", ""}, .down = {"mlp.c_proj", ""}},
                  .final_norm = {"ln_f", ""}};
  }
  return BuildDeclared(read, std::move(files), form);
}

// CWM: windows in three of four layers.
api::Result<std::unique_ptr<Model>> LoadCwm(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.head_dim = 128, .norm_eps = 1e-5F},
                                            .rope = {.default_theta = 1e6, .required = true},
                                            .slides = [](int32_t layer, int32_t) { return layer % 4 != 0; },
                                            .given_window = 8192});
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
