#include "runner/models/latent_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "runner/kernels/attention.h"
#include "runner/kernels/elementwise.h"
#include "runner/kernels/float_panels.h"
#include "runner/kernels/panels.h"
#include "runner/models/decoder_config.h"
#include "runner/models/per_head.h"
#include "runner/weights/block_formats.h"

namespace quire::runner::models {
namespace {

// The epsilon of the latent norms, whatever a configuration says.
constexpr float kLatentEps = 1e-6F;

// What YaRN multiplies the scores by: the square of its growth for mscale_all_dim.
double ScoreGrowth(ConfigReader& read) {
  const auto number = [&](ConfigKey key) {
    const auto* value = read.Find(key);
    return value != nullptr && value->is_number() ? value->get<double>() : 0.0;
  };
  const double factor = number({"rope_parameters/factor|rope_scaling/factor", "rope.scaling.factor"});
  const double share = read.gguf()
                           ? number({"", "rope.scaling.yarn_log_multiplier"})
                           : 0.1 * number({"rope_parameters/mscale_all_dim|rope_scaling/mscale_all_dim", ""});
  if (!(factor > 1) || !(share > 0) || share > 1e3) return 1;
  const double growth = share * std::log(factor) + 1;
  return growth * growth;
}

// The transpose of rows [begin, end) of `from`: as they are if floats, else dequantized. With panels where
// they pay.
kernels::Matrix Transposed(const TensorScope& scope, const kernels::Matrix& from, int64_t begin,
                           int64_t end) {
  if (from.data == nullptr) return {};
  const kernels::Matrix rows = kernels::RowsOf(from, begin, end);
  const bool floats = kernels::IsFloat(from.type);
  const weights::DataType type = floats ? from.type : weights::DataType::kF32;
  kernels::Matrix to{.data = rows.data, .type = type, .out = from.in, .in = end - begin};
  if (scope.metadata_only()) return scope.InPanels(to, WeightUse::kMade);
  const size_t bytes = weights::RowBytes(type, 1), out = static_cast<size_t>(to.out),
               in = static_cast<size_t>(to.in);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(out * in * bytes);
  std::vector<float> dequantized(floats ? 0 : out);
  for (size_t i = 0; i < in; ++i) {
    const std::byte* row = rows.data + i * weights::RowBytes(from.type, from.in);
    if (!floats) {
      weights::Dequantize(from.type, row, from.in, dequantized.data());
      row = reinterpret_cast<const std::byte*>(dequantized.data());
    }
    for (size_t o = 0; o < out; ++o) std::memcpy(memory.get() + (o * in + i) * bytes, row + o * bytes, bytes);
  }
  to.data = memory.get();
  return scope.InPanels(to, std::move(memory));
}

// W_kb and W_vb of each head.
void BindUp(const TensorScope& scope, const LatentAttentionShape& shape, TensorName name,
            LatentAttention* attention) {
  const int64_t heads = shape.heads, latent = shape.latent, plain = shape.plain, value = shape.value;
  if (scope.gguf() && scope.Has({"", "attn_k_b.weight"})) {
    for (const kernels::Matrix& one : scope.Stacked({"", "attn_k_b.weight"}, heads, latent, plain)) {
      attention->key_up.push_back(scope.InPanels(one));
    }
    for (const kernels::Matrix& one : scope.Stacked({"", "attn_v_b.weight"}, heads, value, latent)) {
      attention->value_up.push_back(scope.InPanels(one));
    }
    return;
  }
  const kernels::Matrix both = scope.Matrix(name, heads * (plain + value), latent);
  for (int64_t head = 0; head < heads && !scope.failed(); ++head) {
    const int64_t first = head * (plain + value);
    attention->key_up.push_back(Transposed(scope, both, first, first + plain));
    attention->value_up.push_back(
        scope.InPanels(kernels::RowsOf(both, first + plain, first + plain + value)));
  }
}

}  // namespace

LatentAttentionShape ReadLatentAttention(ConfigReader& read, int32_t heads, int32_t given_value) {
  const auto given = given_value > 0 ? std::optional<int64_t>(given_value) : std::nullopt;
  LatentAttentionShape shape{.heads = heads};
  shape.query_rank = read.Small({"q_lora_rank", "attention.q_lora_rank"}, 0, kMaxWidth, 0);
  shape.latent = read.Small({"kv_lora_rank", "attention.kv_lora_rank"}, 1, kernels::kMaxHeadDim);
  shape.rotary = read.Small({"qk_rope_head_dim", "rope.dimension_count"}, 2, kernels::kMaxHeadDim);
  if (read.gguf()) {
    // Early files have a head's key and value under the names that later ones use for what is cached.
    const bool named = read.Find({"", "attention.key_length_mla"}) != nullptr;
    const int32_t key = read.Small({"", named ? "attention.key_length_mla" : "attention.key_length"}, 2,
                                   2 * kernels::kMaxHeadDim);
    shape.plain = std::max(key - shape.rotary, 1);
    if (key <= shape.rotary) read.Fail("rope.dimension_count leaves nothing of a head's key");
    shape.bias = Bias::kIfStored;
    shape.value = read.Small({"", named ? "attention.value_length_mla" : "attention.value_length"}, 1,
                             kernels::kMaxHeadDim, given);
  } else {
    shape.plain = read.Small({"qk_nope_head_dim", ""}, 1, kernels::kMaxHeadDim);
    shape.value = read.Small({"v_head_dim", ""}, 1, kernels::kMaxHeadDim, given);
    shape.bias = read.Boolean({"attention_bias", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  }
  if (shape.rotary % 2 != 0 || shape.rotary + shape.latent > kernels::kMaxLatentKeyDim) {
    read.Fail(fmt::format("{} rotated and {} latent numbers of a token are odd, or more than {}",
                          shape.rotary, shape.latent, kernels::kMaxLatentKeyDim));
  }
  shape.scale =
      static_cast<float>(ScoreGrowth(read) / std::sqrt(static_cast<double>(shape.plain + shape.rotary)));
  return shape;
}

std::span<float> LatentAttention::Queries(ForwardContext& ctx, const kernels::MatMulInput& x) const {
  const auto rows = static_cast<size_t>(ctx.rows()), heads = static_cast<size_t>(shape.heads);
  const auto plain = static_cast<size_t>(shape.plain), turned = static_cast<size_t>(shape.rotary);
  const auto latent = static_cast<size_t>(shape.latent);
  const std::span<float> projected =
      ctx.work.projected.Get(static_cast<int64_t>(rows * heads * (plain + turned)));
  if (query_down) {
    const std::span<float> low = ctx.work.convolved.Get(ctx.rows() * shape.query_rank);
    query_down.Run(ctx.pool, x, low);
    query_norm.Run(ctx.pool, low, low);
    const kernels::MatMulInput in = ctx.Input(low);
    query.Run(ctx.pool, in, projected);
    if (indexer) indexer->Choose(ctx, in);
  } else {
    query.Run(ctx.pool, x, projected);
  }
  const std::span<float> by_head = ctx.work.convolved.Get(static_cast<int64_t>(heads * rows * plain));
  const std::span<float> absorbed = ctx.work.z.Get(static_cast<int64_t>(heads * rows * latent));
  ToHeads(projected, rows, heads, plain + turned, 0, plain, by_head);
  RunHeads(ctx, key_up, by_head, absorbed);
  const std::span<float> queries = ctx.work.q.Get(static_cast<int64_t>(rows * heads * (turned + latent)));
  for (size_t i = 0; i < rows * heads; ++i) {
    std::copy_n(projected.data() + i * (plain + turned) + plain, turned,
                queries.data() + i * (turned + latent));
  }
  FromHeads(absorbed, rows, heads, turned + latent, turned, latent, queries);
  rotary->Apply(ctx, shape.rotary + shape.latent, queries);
  growth.Apply(ctx, queries);
  return queries;
}

void LatentAttention::StoreLatent(ForwardContext& ctx, const kernels::MatMulInput& x) const {
  const auto rows = static_cast<size_t>(ctx.rows());
  const auto turned = static_cast<size_t>(shape.rotary), latent = static_cast<size_t>(shape.latent);
  const std::span<float> both = ctx.work.k.Get(static_cast<int64_t>(rows * (latent + turned)));
  const std::span<float> keys = ctx.work.v.Get(static_cast<int64_t>(rows * (latent + turned)));
  kv_down.Run(ctx.pool, x, both);
  for (size_t row = 0; row < rows; ++row) {
    const std::span<float> from = both.subspan(row * (latent + turned), latent + turned);
    const std::span<float> to = keys.subspan(row * (latent + turned), latent + turned);
    std::ranges::copy(from.subspan(latent), to.begin());
    kv_norm.Run(ctx.pool, from.first(latent), to.subspan(turned));
  }
  rotary->Apply(ctx, shape.rotary + shape.latent, keys);
  const kernels::AttentionLayer at{.layout = &ctx.layout,
                                   .group = binding.index,
                                   .layer = binding.layer,
                                   .step = &ctx.step,
                                   .row_begin = ctx.batch.row_begin};
  kernels::StoreKeyValue(ctx.pool, at, keys, {});
}

void LatentAttention::Run(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const auto rows = static_cast<size_t>(ctx.rows()), heads = static_cast<size_t>(shape.heads);
  const auto latent = static_cast<size_t>(shape.latent), value = static_cast<size_t>(shape.value);
  const kernels::MatMulInput in = ctx.Input(x);
  StoreLatent(ctx, in);
  if (indexer) indexer->Store(ctx, in);
  const std::span<float> queries = Queries(ctx, in);
  const std::span<float> attended = ctx.work.attended.Get(static_cast<int64_t>(rows * heads * latent));
  const kernels::AttentionLayer at{.layout = &ctx.layout,
                                   .group = binding.index,
                                   .layer = binding.layer,
                                   .step = &ctx.step,
                                   .row_begin = ctx.batch.row_begin};
  const kernels::Scoring scoring{.scale = shape.scale, .sinks = sinks};
  if (selected && !ctx.work.selection.all) {
    const kernels::SelectedKeys chosen{.at = at, .chosen = &ctx.work.selection};
    kernels::SelectedAttention(ctx.pool, {&chosen, 1}, shape.heads, scoring, queries, attended);
  } else {
    kernels::Attention(ctx.pool, at, ctx.work.plans[binding.index], scoring, queries, attended);
  }
  const std::span<float> by_head = ctx.work.z.Get(static_cast<int64_t>(heads * rows * latent));
  const std::span<float> values = ctx.work.convolved.Get(static_cast<int64_t>(heads * rows * value));
  const std::span<float> joined = ctx.work.projected.Get(static_cast<int64_t>(rows * heads * value));
  ToHeads(attended, rows, heads, latent, 0, latent, by_head);
  RunHeads(ctx, value_up, by_head, values);
  FromHeads(values, rows, heads, value, 0, value, joined);
  if (gate) {
    const std::span<float> factors = ctx.work.attention_gate.Get(ctx.rows() * gate.linear.weight.out);
    gate.linear.Run(ctx.pool, in, factors);
    gate.Apply(ctx, factors, joined);
  }
  out.Run(ctx.pool, ctx.Input(joined), y);
}

LatentAttention BindLatentAttention(const TensorScope& scope, int64_t hidden,
                                    const LatentAttentionShape& shape, const LatentNames& names) {
  const int64_t heads = shape.heads, queries = heads * (shape.plain + shape.rotary);
  LatentAttention attention;
  attention.shape = shape;
  if (shape.query_rank > 0) {
    attention.query_down = scope.BindLinear(names.query_down, shape.query_rank, hidden, shape.bias);
    attention.query_norm = {.weight = scope.Norm(names.query_norm, shape.query_rank), .eps = kLatentEps};
    attention.query = scope.BindLinear(names.query_up, queries, shape.query_rank);
  } else {
    attention.query = scope.BindLinear(names.query, queries, hidden);
  }
  attention.kv_down = scope.BindLinear(names.kv_down, shape.latent + shape.rotary, hidden, shape.bias);
  attention.kv_norm = {.weight = scope.Norm(names.kv_norm, shape.latent), .eps = kLatentEps};
  BindUp(scope, shape, names.kv_up, &attention);
  attention.out = scope.BindLinear(names.out, hidden, heads * shape.value, shape.bias);
  RowWidths& widths = scope.widths();
  const int64_t cached = shape.rotary + shape.latent;
  RowWidths::Grow(widths.projected, std::max(queries, heads * shape.value));
  RowWidths::Grow(widths.convolved, heads * std::max(shape.plain, shape.value));
  RowWidths::Grow(widths.convolved, shape.query_rank);
  RowWidths::Grow(widths.z, heads * shape.latent);
  widths.GrowAttention(heads * cached, cached, shape.rotary, /*gated=*/false);
  const bool quantized = !attention.value_up.empty() && kernels::HasPanels(attention.value_up[0].type);
  if (quantized) RowWidths::Grow(widths.quantized, heads * std::max(shape.latent, shape.plain));
  return attention;
}

}  // namespace quire::runner::models
