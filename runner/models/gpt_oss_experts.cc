#include "runner/models/gpt_oss_experts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runner/kernels/panels.h"
#include "runner/weights/block_layouts.h"

namespace quire::runner::models {
namespace {

using weights::BlockMXFP4;

constexpr int64_t kElements = BlockMXFP4::kElements;

// One projection of all experts as a checkpoint stores it, [experts, out, in] or, of floats, [experts, in, out].
struct Stored {
  const TensorScope& scope;
  int64_t out, in;
  bool blocks = false;                     // MXFP4
  kernels::Matrix floats = {};             // [experts * in, out]
  std::span<const std::byte> quants = {};  // [experts, out, in / 32, 16]
  std::span<const std::byte> scales = {};  // [experts, out, in / 32]
};

Stored Find(const TensorScope& scope, const std::string& name, int64_t experts, int64_t out, int64_t in) {
  Stored stored{.scope = scope, .out = out, .in = in};
  stored.blocks = scope.HasRaw(name + "_blocks");
  if (!stored.blocks) {
    const std::vector<kernels::Matrix> all = scope.Stacked({name, ""}, experts, in, out);
    if (!all.empty()) stored.floats = all.front();
    return stored;
  }
  const std::array<int64_t, 4> shape = {experts, out, in / kElements, kElements / 2};
  stored.quants = scope.Raw(name + "_blocks", "U8", shape);
  stored.scales = scope.Raw(name + "_scales", "U8", std::span(shape).first(3));
  return stored;
}

// Blocks of row `row`, counted through all experts. In the checkpoint byte j holds elements 2j and 2j + 1, in
// ggml's block j and 16 + j.
void CopyBlocks(const Stored& from, size_t row, std::byte* to) {
  const auto blocks = static_cast<size_t>(from.in / kElements);
  for (size_t b = 0; b < blocks; ++b) {
    const std::byte* const pairs = from.quants.data() + (row * blocks + b) * (kElements / 2);
    BlockMXFP4 block;
    block.e = from.scales[row * blocks + b];
    const auto nibble = [&](size_t element) {
      return (pairs[element / 2] >> (element % 2 * 4)) & std::byte{15};
    };
    for (size_t j = 0; j < 16; ++j) block.qs[j] = nibble(j) | nibble(j + 16) << 4;
    std::memcpy(to + b * sizeof(block), &block, sizeof(block));
  }
}

// The matrix of every `step`-th output from `first` on of one expert, [out / step, in]. What no panels hold stays
// in `made`.
kernels::Matrix One(const Stored& from, size_t expert, size_t first, size_t step,
                    std::vector<std::unique_ptr<std::byte[]>>* made) {
  const weights::DataType type = from.blocks ? weights::DataType::kMXFP4 : from.floats.type;
  const auto out = static_cast<size_t>(from.out), in = static_cast<size_t>(from.in);
  kernels::Matrix matrix{.type = type, .out = from.out / static_cast<int64_t>(step), .in = from.in};
  if (from.scope.failed()) return matrix;
  if (from.scope.metadata_only()) {
    matrix.data = from.blocks ? from.quants.data() : from.floats.data;
    return from.scope.InPanels(matrix);
  }
  const size_t row_bytes = weights::RowBytes(type, from.in);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(out / step * row_bytes);
  for (size_t o = first; o < out; o += step) {
    std::byte* const row = memory.get() + o / step * row_bytes;
    if (from.blocks) {
      CopyBlocks(from, expert * out + o, row);
      continue;
    }
    const size_t bytes = row_bytes / in;
    for (size_t i = 0; i < in; ++i) {
      std::memcpy(row + i * bytes, from.floats.data + ((expert * in + i) * out + o) * bytes, bytes);
    }
  }
  matrix.data = memory.get();
  matrix = from.scope.InPanels(matrix);
  if (matrix.panels == nullptr) made->push_back(std::move(memory));
  return matrix;
}

std::vector<float> EveryOther(const std::vector<float>& both, size_t first) {
  std::vector<float> half;
  half.reserve(both.size() / 2);
  for (size_t i = first; i < both.size(); i += 2) half.push_back(both[i]);
  return half;
}

}  // namespace

void BindGptOssExperts(const TensorScope& scope, int64_t hidden, const MixtureConfig& config,
                       MixtureOfExperts* moe) {
  const int64_t experts = config.experts, width = config.width;
  if (scope.gguf()) {
    BindExperts(scope, {}, experts, hidden, width, moe);
    moe->gate_bias = scope.Table({"", "ffn_gate_exps.bias"}, experts, width);
    moe->up_bias = scope.Table({"", "ffn_up_exps.bias"}, experts, width);
    moe->down_bias = scope.Table({"", "ffn_down_exps.bias"}, experts, hidden);
    return;
  }
  const Stored gate_up = Find(scope, "mlp.experts.gate_up_proj", experts, 2 * width, hidden);
  const Stored down = Find(scope, "mlp.experts.down_proj", experts, hidden, width);
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
    moe->gate.push_back(One(gate_up, e, 0, 2, &moe->made));
    moe->up.push_back(One(gate_up, e, 1, 2, &moe->made));
    moe->down.push_back(One(down, e, 0, 1, &moe->made));
  }
  const std::vector<float> both = scope.Table({"mlp.experts.gate_up_proj_bias", ""}, experts, 2 * width);
  moe->gate_bias = EveryOther(both, 0);
  moe->up_bias = EveryOther(both, 1);
  moe->down_bias = scope.Table({"mlp.experts.down_proj_bias", ""}, experts, hidden);
  scope.widths().GrowExperts(experts, moe->chosen, hidden, width);
  const bool quantized = kernels::HasPanels(moe->down[0].type);
  if (quantized) RowWidths::Grow(scope.widths().quantized, moe->chosen * std::max(hidden, width));
}

}  // namespace quire::runner::models
