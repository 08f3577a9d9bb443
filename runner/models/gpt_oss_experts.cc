#include "runner/models/gpt_oss_experts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/panels.h"
#include "runner/weights/block_layouts.h"
#include "runner/weights/mxfp4_parts.h"

namespace quire::runner::models {
namespace {

constexpr int64_t kElements = weights::BlockMXFP4::kElements;

// One projection of all experts as a checkpoint stores it: MXFP4 in parts, MXFP4 in blocks (a packed model)
// or floats.
struct Stored {
  const TensorScope& scope;
  int64_t out, in;
  weights::DataType type = weights::DataType::kMXFP4;
  weights::Mxfp4Parts parts = {};  // [experts, out, in]
  kernels::Matrix rows = {};       // [experts * out, in], or floats [experts * in, out]

  bool in_parts() const { return !parts.quants.empty(); }
};

Stored Find(const TensorScope& scope, const std::string& name, int64_t experts, int64_t out, int64_t in) {
  Stored stored{.scope = scope, .out = out, .in = in};
  if (scope.HasRaw(name + "_blocks")) {
    const std::array<int64_t, 4> shape = {experts, out, in / kElements, kElements / 2};
    stored.parts = {.name = name,
                    .shape = {experts, out, in},
                    .quants = scope.Raw(name + "_blocks", "U8", shape),
                    .scales = scope.Raw(name + "_scales", "U8", std::span(shape).first(3))};
    return stored;
  }
  const bool blocks = scope.TypeOf({name, ""}) == weights::DataType::kMXFP4;
  const std::vector<kernels::Matrix> all =
      blocks ? scope.Stacked({name, ""}, experts, out, in) : scope.Stacked({name, ""}, experts, in, out);
  if (all.empty()) return stored;
  stored.rows = all.front();
  stored.type = stored.rows.type;
  if (!blocks && !kernels::IsFloat(stored.type)) {
    scope.Fail({name, ""},
               "is quantized across the inputs of its experts; only floats and MXFP4 are supported");
  }
  return stored;
}

// Row `row` of a matrix [out, in] of one expert, as the matrix of One() has it.
void CopyRow(const Stored& from, size_t expert, size_t row, std::byte* to) {
  const auto out = static_cast<size_t>(from.out), in = static_cast<size_t>(from.in);
  const size_t row_bytes = weights::RowBytes(from.type, from.in);
  if (from.in_parts()) {
    from.parts.CopyRows(expert * out + row, 1, to);
  } else if (from.type == weights::DataType::kMXFP4) {
    std::memcpy(to, from.rows.data + (expert * out + row) * row_bytes, row_bytes);
  } else {
    const size_t bytes = row_bytes / in;
    for (size_t i = 0; i < in; ++i) {
      std::memcpy(to + i * bytes, from.rows.data + ((expert * in + i) * out + row) * bytes, bytes);
    }
  }
}

// The matrix of every `step`-th output from `first` on of one expert, [out / step, in].
kernels::Matrix One(const Stored& from, size_t expert, size_t first, size_t step) {
  kernels::Matrix matrix{.type = from.type, .out = from.out / static_cast<int64_t>(step), .in = from.in};
  if (from.scope.failed()) return matrix;
  if (from.scope.metadata_only()) {
    matrix.data = from.in_parts() ? from.parts.quants.data() : from.rows.data;
    return from.scope.InPanels(matrix, WeightUse::kMade);
  }
  const size_t row_bytes = weights::RowBytes(from.type, from.in);
  const auto out = static_cast<size_t>(from.out);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(out / step * row_bytes);
  for (size_t o = first; o < out; o += step) {
    CopyRow(from, expert, o, memory.get() + o / step * row_bytes);
  }
  matrix.data = memory.get();
  return from.scope.InPanels(matrix, std::move(memory));
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
    moe->gate.push_back(One(gate_up, e, 0, 2));
    moe->up.push_back(One(gate_up, e, 1, 2));
    moe->down.push_back(One(down, e, 0, 1));
  }
  const std::vector<float> both = scope.Table({"mlp.experts.gate_up_proj_bias", ""}, experts, 2 * width);
  moe->gate_bias = EveryOther(both, 0);
  moe->up_bias = EveryOther(both, 1);
  moe->down_bias = scope.Table({"mlp.experts.down_proj_bias", ""}, experts, hidden);
  FinishExperts(scope, hidden, width, moe);
}

}  // namespace quire::runner::models
