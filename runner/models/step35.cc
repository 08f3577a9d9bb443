#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

std::vector<kernels::SwigluClamp> ReadLimits(ConfigReader& read, std::string_view name, size_t stored,
                                             size_t layers) {
  std::vector<kernels::SwigluClamp> clamps(layers, {.slope = 1, .shift = 0, .late = true});
  if (read.Find({"", name}) == nullptr) return clamps;
  const std::vector<double> limits = read.Numbers({"", name}, stored, 1e6, /*or_zero=*/true);
  for (size_t i = 0; i < layers && i < limits.size(); ++i) clamps[i].limit = static_cast<float>(limits[i]);
  return clamps;
}

}  // namespace

// Step 3.5: heads of each layer's own number, whose results have factors; half of a head is rotated in layers
// without a window; experts with limits.
api::Result<std::unique_ptr<Model>> LoadStep35(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadMixtureForm(read,
                      {.given = {.heads = -1, .kv_heads = -1, .norm_eps = 1e-5F},
                       .rope = {.default_theta = 10000, .gguf_partial = 0.5}},
                      {.score = MixtureConfig::Score::kSigmoid, .normalize = true, .as_stored = true});
  ReadLayerHeads(read, {"", "attention.head_count"}, {"", "attention.head_count_kv"}, &form);
  const size_t layers = form.layers.size(), stored = layers + static_cast<size_t>(form.mtp_layers);
  std::vector<int32_t> windows = ReadWindows(
      read, static_cast<int32_t>(stored), [](int32_t, int32_t) { return false; }, 0, 0);
  windows.resize(layers);
  form.SetWindows(windows);
  form.mtp_layers = 0;  // they are left out
  const bool own = read.Find({"", "rope.freq_base_swa"}) != nullptr;
  const std::string_view dims = read.Find({"", "rope.dimension_count_swa"}) != nullptr
                                    ? "rope.dimension_count_swa"
                                    : "rope.dimension_count";
  form.ropes.push_back(ReadRope(read, {.head_dim = form.decoder.head_dim,
                                       .theta = {"", own ? "rope.freq_base_swa" : "rope.freq_base"},
                                       .default_theta = 10000,
                                       .dimensions = {"", dims},
                                       .scaled = false}));
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 1 : 0;
  MixtureConfig& mixture = form.mixture.config;
  mixture.shared_width = read.Small({"", "expert_shared_feed_forward_length"}, 0, kMaxWidth, 0);
  form.mixture.clamps = ReadLimits(read, "swiglu_clamp_exp", stored, layers);
  form.mixture.shared_clamps = ReadLimits(read, "swiglu_clamp_shexp", stored, layers);
  form.qk_norm = QkNorm::kHeads;
  form.output_gate = OutputGate::Kind::kSigmoid;
  form.names.attention.gate = {"", "attn_gate"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
