#include "runner/weights/quantize_on_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runner/weights/metadata_only.h"
#include "runner/weights/model_files_overlay.h"
#include "runner/weights/quantize.h"
#include "runner/weights/scratch_file.h"
#include "runner/weights/text.h"

namespace quire::runner::weights {
namespace {

constexpr size_t kBlockAlignment = 64;  // of a tensor's blocks

constexpr auto kOnLoadTypes =
    std::to_array<DataType>({DataType::kQ8_0, DataType::kQ6_K, DataType::kQ4_K, DataType::kQ4_0});

// Parts of names, in both formats, of matrices that stay as they are: norms, convolutions, routers, the small
// projections of a delta net's decay and step and of RWKV's gates, maps of residual streams, tables of
// positions and types, and tables that are read by rows and may be larger than all memory.
constexpr std::string_view kNotQuantizedOnLoad[] = {
    "norm",           "conv.conv",    "conv1d",
    "shortconv.conv", "ffn_gate_inp", "feed_forward.gate.weight",
    "mlp.gate.",      "router",       "shared_expert_gate",
    "in_proj_a",      "in_proj_b",    "ssm_alpha",
    "ssm_beta",       "ssm_ba",       "altup",
    "laurel",         "centroids",    "per_layer_model_proj",
    "position_embd",  "token_types",  "sparse_moe.gate",
    "proj_bias",      "mixer.gate.",  "dt_proj",
    "x_proj",         "ssm_dt.",      "ssm_x.",
    "time_mix_w",     "time_mix_a",   "time_mix_v1",
    "time_mix_v2",    "time_mix_g",   "mix_lerp",
    "_lora.lora.",    "_fn.weight",   "_ape.weight",
    "ffn.gate.",      "ngram_embed",  "per_layer_token_embd"};

// Likewise of vision towers: kernels of patches and tables of positions.
constexpr std::string_view kOfPlaces[] = {"patch_emb", "patch_conv", "pos_embed", "position_embed"};

constexpr std::string_view kEnds[] = {"embed_tokens.weight", "embeddings.weight", "embedding.weight",
                                      "lm_head.weight"};
constexpr std::string_view kGgufEnds[] = {"token_embd.weight", "output.weight"};

bool IsEnd(std::string_view name) {
  return std::ranges::find(kGgufEnds, name) != std::end(kGgufEnds) ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

// The type that a tensor is to have.
DataType TypeFor(const Tensor& tensor, DataType wanted) {
  const std::string_view name = tensor.name;
  const bool in_blocks = BlockElements(tensor.type) > 1;
  const bool matrix =
      tensor.shape.size() >= 2 && (name.ends_with("weight") || name.find("experts.") != name.npos);
  const bool not_quantized = std::ranges::any_of(
      kNotQuantizedOnLoad, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
  if (in_blocks || !matrix || not_quantized) return tensor.type;
  if (IsOfVisionTower(name)) {
    const bool by_place = std::ranges::any_of(
        kOfPlaces, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
    if (by_place) return tensor.type;
    wanted = DataType::kQ8_0;
  }
  const bool coarse = wanted == DataType::kQ4_0 || wanted == DataType::kQ4_K;
  for (const DataType type : {coarse && IsEnd(name) ? DataType::kQ6_K : wanted, DataType::kQ8_0}) {
    if (tensor.columns() % BlockElements(type) == 0) return type;
  }
  return tensor.type;
}

std::optional<DataType> FindType(std::string_view name) {
  const auto equal = [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) == std::toupper(static_cast<unsigned char>(b));
  };
  for (const DataType type : kOnLoadTypes) {
    if (std::ranges::equal(Name(type), name, equal)) return type;
  }
  return std::nullopt;
}

size_t BytesAs(const Tensor& tensor, DataType type) {
  const size_t bytes = static_cast<size_t>(tensor.rows()) * RowBytes(type, tensor.columns());
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// Types and sizes as they will be.
api::Result<std::shared_ptr<const ModelFiles>> Planned(std::shared_ptr<const ModelFiles> files,
                                                       std::vector<Tensor> tensors, DataType type) {
  size_t largest = 0;
  for (const Tensor& tensor : tensors) largest = std::max(largest, BytesAs(tensor, TypeFor(tensor, type)));
  auto nothing = ReserveUnreadable(largest);
  if (!nothing) return api::Fail(api::ErrorCode::kInternal, "no address space for quantized weights");
  for (Tensor& tensor : tensors) {
    const DataType to = TypeFor(tensor, type);
    if (to == tensor.type) continue;
    const size_t bytes = static_cast<size_t>(tensor.rows()) * RowBytes(to, tensor.columns());
    tensor.type = to;
    tensor.data = std::span(static_cast<const std::byte*>(nothing.get()), bytes);
  }
  return std::make_shared<const ModelFilesOverlay>(std::move(files), std::move(tensors), std::move(nothing),
                                                   /*metadata_only=*/true);
}

}  // namespace

std::vector<std::string_view> LoadQuantizationNames() {
  std::vector<std::string_view> names;
  names.reserve(kOnLoadTypes.size());
  for (const DataType type : kOnLoadTypes) names.push_back(Name(type));
  return names;
}

api::Result<std::shared_ptr<const ModelFiles>> QuantizeOnLoad(std::shared_ptr<const ModelFiles> files,
                                                              std::string_view name, int threads) {
  const auto type = FindType(name);
  if (!type) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("cannot quantize to {} at load time; supported types: {}", Quoted(name),
                                 fmt::join(LoadQuantizationNames(), ", ")));
  }
  std::vector<Tensor> tensors = files->tensors();
  size_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    const DataType to = TypeFor(tensor, *type);
    if (to != tensor.type) bytes += BytesAs(tensor, to);
  }
  if (bytes == 0) return files;
  if (files->metadata_only()) return Planned(std::move(files), std::move(tensors), *type);
  auto blocks = ScratchFile::Make(bytes);
  if (!blocks) return std::unexpected(blocks.error());
  size_t at = 0;
  for (Tensor& tensor : tensors) {
    const DataType to = TypeFor(tensor, *type);
    if (to == tensor.type) continue;
    const size_t used = static_cast<size_t>(tensor.rows()) * RowBytes(to, tensor.columns());
    const std::span<std::byte> out = blocks->data().subspan(at, used);
    ConvertRows(tensor, to, 0, tensor.rows(), std::max(threads, 1), out);
    at += BytesAs(tensor, to);
    tensor.type = to;
    tensor.data = out;
  }
  return std::make_shared<const ModelFilesOverlay>(std::move(files), std::move(tensors),
                                                   std::make_shared<const ScratchFile>(*std::move(blocks)),
                                                   /*metadata_only=*/false);
}

}  // namespace quire::runner::weights
