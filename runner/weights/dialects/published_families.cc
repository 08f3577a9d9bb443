#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runner/weights/dialects/gguf_edits.h"

namespace quire::runner::weights {
namespace {

constexpr int64_t kLengthMax = int64_t{1} << 20;

}  // namespace

api::Result<GgufEdits> DetectOlmo(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "olmo2" || view.Text(view.Key("rope.scaling.type")) != "yarn") return edits;
  const std::string key = view.Key("rope.scaling.attn_factor");
  const double whole = view.Number(key).value_or(0),
               factor = view.Number(view.Key("rope.scaling.factor")).value_or(0);
  if (!(whole > 0) || !(factor > 1)) return edits;
  const double growth = 0.1 * std::log(factor) + 1;
  // Converters round it to float32.
  const double rest = std::abs(whole / growth - 1) < 1e-6 ? 1 : whole / growth;
  if (whole == 1) return edits;
  edits.Set(key, rest,
            fmt::format("{}, the whole magnitude of YaRN, of which its factor gives {}", whole, growth));
  return edits;
}

api::Result<GgufEdits> DetectPhi3(const GgufView& view) {
  const std::string key = view.Key("rope.scaling.attn_factor");
  if (view.architecture() != "phi3" || view.Number(key).value_or(1) == 1) return GgufEdits{};
  if (view.Has(view.Key("rope.scaling.type")) || view.FindTensor("rope_factors_long.weight") != nullptr) {
    return GgufEdits{};
  }
  return Contradiction(key, "is set, but there is neither a rope.scaling.type nor rope_factors_long.weight");
}

api::Result<GgufEdits> DetectMistral3(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "mistral3") return edits;
  edits.Alias(view, view.Key("rope.scaling_beta"), view.Key("attention.temperature_scale"));
  const std::string key = view.Key("rope.scaling.mscale");
  if (const double share = view.Number(key).value_or(0); share != 0 && share != 1) {
    return Contradiction(key, fmt::format("is {}; a Mistral 3 has 1", share));
  }
  return edits;
}

api::Result<GgufEdits> DetectDeepSeek(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "deepseek2") return edits;
  const auto length = [&](const char* suffix) {
    const int64_t value = view.Integer(view.Key(suffix)).value_or(0);
    return value > 0 && value < kLengthMax ? value : 0;
  };
  const int64_t latent = length("attention.kv_lora_rank"), cached = latent + length("rope.dimension_count");
  const int64_t key = length("attention.key_length"), value = length("attention.value_length");
  const int64_t named = length("attention.key_length_mla");
  // llama.cpp has a head's lengths under the names that end in _mla, and those of a cached token without.
  if (latent == 0 || named != cached || length("attention.value_length_mla") != latent || key == 0 ||
      value == 0 || (key == cached && value == latent)) {
    return edits;
  }
  for (const auto& [name, of_head, of_token] :
       {std::tuple<const char*, int64_t, int64_t>{"attention.key_length", key, cached},
        {"attention.value_length", value, latent}}) {
    const std::string plain = view.Key(name), mla = plain + "_mla";
    edits.Set(mla, of_head,
              fmt::format("{}, that of a cached token; that of a head is under {}", of_token, plain));
    edits.keys.push_back({plain, of_token});
  }
  return edits;
}

api::Result<GgufEdits> DetectNemotron(const GgufView& view) {
  GgufEdits edits;
  if (view.architecture() != "nemotron_h_moe") return edits;
  edits.RenameInBlocks(view, ".ffn_latent_in.weight", ".ffn_latent_down.weight");
  edits.RenameInBlocks(view, ".ffn_latent_out.weight", ".ffn_latent_up.weight");
  const std::string width = view.Key("moe_latent_size");
  if (edits.tensors.empty() || view.Has(width)) return edits;
  const Tensor* down = view.FindTensor(edits.tensors.front().from);
  if (down != nullptr && down->shape.size() == 2) {
    edits.Set(width, down->rows(), fmt::format("absent; the width of {}", down->name));
  }
  return edits;
}

}  // namespace quire::runner::weights
