#include "runner/models/moe.h"

#include <fmt/format.h>

#include <algorithm>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/float_panels.h"
#include "runner/kernels/panels.h"

namespace quire::runner::models {
namespace {

// y [places, out] = rows of x [places, in] times their expert's matrix.
void RunExperts(ForwardContext& ctx, ExpertPanels* panels, std::span<const kernels::Matrix> experts,
                const kernels::MatMulInput& x, std::span<float> y) {
  const kernels::Routing& routing = ctx.work.routing;
  std::vector<kernels::MatMulPart>& parts = ctx.work.parts;
  parts.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    if (routing.begin[e] == routing.begin[e + 1]) continue;
    parts.push_back({.weight = experts[e], .begin = routing.begin[e], .end = routing.begin[e + 1]});
  }
  if (panels != nullptr) panels->Provide(ctx.pool, parts);
  kernels::MatMulParts(ctx.pool, x, parts, y);
}

}  // namespace

void MixtureOfExperts::Choose(ForwardContext& ctx, std::span<const float> x) const {
  const int64_t experts = router.weight.out;
  const std::span<float> scores = ctx.work.scores.Get(ctx.rows() * experts);
  router.Run(ctx.pool, ctx.Input(x), scores);
  if (logit_cap > 0) kernels::SoftCap(ctx.pool, logit_cap, scores);
  std::vector<int32_t> given;
  if (!by_token.empty()) {
    for (const TokenId token : ctx.batch.tokens) {
      const auto first = by_token.begin() + int64_t{token} * chosen;
      given.insert(given.end(), first, first + chosen);
    }
  }
  kernels::Route(ctx.pool,
                 {.score = score,
                  .experts = experts,
                  .chosen = chosen,
                  .given = given,
                  .bias = choice_bias,
                  .groups = groups,
                  .groups_kept = groups_kept,
                  .group_best = group_best,
                  .normalize = normalize,
                  .epsilon = normalize_eps,
                  .scale = scale,
                  .jitter = jitter,
                  .per_expert = expert_scale},
                 scores, &ctx.work.routing);
}

void MixtureOfExperts::AddShared(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const std::span<float> extra = ctx.work.shared.Get(static_cast<int64_t>(y.size()));
  if (shared.gate) {
    shared.Run(ctx, x, extra);
  } else {
    plain_shared.Run(ctx, x, extra);
  }
  if (shared_gate) {
    const std::span<float> gate_logits = ctx.work.scores.Get(ctx.rows());
    shared_gate.Run(ctx.pool, ctx.Input(x), gate_logits);
    kernels::SigmoidMulRows(ctx.pool, gate_logits, extra);
  }
  if (shared_scale != 1) kernels::Scale(ctx.pool, shared_scale, extra);
  kernels::Add(ctx.pool, extra, y);
}

void MixtureOfExperts::Run(ForwardContext& ctx, std::span<const float> router_x, std::span<const float> x,
                           std::span<float> y) const {
  Choose(ctx, router_x);
  if (latent_in) {
    const std::span<float> latent = ctx.work.shared.Get(ctx.rows() * latent_in.weight.out);
    latent_in.Run(ctx.pool, ctx.Input(x), latent);
    RunChosen(ctx, latent, latent);
    latent_out.Run(ctx.pool, ctx.Input(latent), y);
  } else {
    RunChosen(ctx, x, y);
  }
  if (shared.gate || plain_shared.up) AddShared(ctx, x, y);
  for (const MixtureOfExperts& other : added) {
    const std::span<float> extra = ctx.work.shared.Get(static_cast<int64_t>(y.size()));
    other.Run(ctx, router_x, x, extra);
    kernels::Add(ctx.pool, extra, y);
  }
}

void MixtureOfExperts::RunGates(ForwardContext& ctx, std::span<const float> x, std::span<float> gated) const {
  const int64_t hidden = up[0].in, width = up[0].out;
  kernels::Routing& routing = ctx.work.routing;
  const int64_t places = Places(ctx);
  const auto begin = std::span(routing.begin).first(up.size() + 1);
  const auto gather = [&] {
    const std::span<float> in = ctx.work.expert_in.Get(std::ssize(routing.row_at) * hidden);
    kernels::GatherRows(ctx.pool, routing, x, hidden, in);
    if (scale_inputs) kernels::WeighInputs(ctx.pool, hidden, in, &routing);
    return kernels::MatMulInput(in.first(static_cast<size_t>(places * hidden)), places, ctx.work.quantized,
                                begin);
  };
  const kernels::MatMulInput in =
      gathers ? gather()
              : kernels::MatMulInput(x, hidden, std::span(routing.row_at).first(static_cast<size_t>(places)),
                                     ctx.work.quantized, begin);
  const auto add_bias = [&](const std::vector<float>& bias, std::span<float> to) {
    if (!bias.empty()) kernels::AddExpertBias(ctx.pool, routing, bias, width, to);
  };
  if (gate.empty()) {
    RunExperts(ctx, expert_panels, up, in, gated);
    add_bias(up_bias, gated);
    return kernels::SquaredRelu(ctx.pool, gated);
  }
  const std::span<float> wide = ctx.work.up.Get(places * width);
  RunExperts(ctx, expert_panels, gate, in, gated);
  RunExperts(ctx, expert_panels, up, in, wide);
  add_bias(gate_bias, gated);
  add_bias(up_bias, wide);
  Gate(ctx.pool, activation, clamp, wide, gated);
}

void MixtureOfExperts::RunChosen(ForwardContext& ctx, std::span<const float> x, std::span<float> y) const {
  const int64_t hidden = up[0].in, width = up[0].out, places = Places(ctx), all = ctx.rows() * chosen;
  const kernels::Routing& routing = ctx.work.routing;
  const std::span<float> gated = ctx.work.gate.Get(places * width);
  const std::span<float> out = ctx.work.expert_out.Get(all * hidden);
  if (places > 0) {
    RunGates(ctx, x, gated);
    const std::span<float> results = out.first(static_cast<size_t>(places * hidden));
    const auto begin = std::span(routing.begin).first(up.size() + 1);
    RunExperts(ctx, expert_panels, down, {gated, places, ctx.work.quantized, begin}, results);
    if (!down_bias.empty()) kernels::AddExpertBias(ctx.pool, routing, down_bias, hidden, results);
  }
  for (int64_t place = places; place < all; ++place) {
    const auto row = static_cast<size_t>(routing.row_at[static_cast<size_t>(place)] * hidden);
    std::ranges::copy(x.subspan(row, static_cast<size_t>(hidden)), out.begin() + place * hidden);
  }
  kernels::CombineRows(ctx.pool, routing, chosen, out, hidden, y);
}

void FinishExperts(const TensorScope& layer, int64_t hidden, int64_t width, MixtureOfExperts* moe) {
  if (moe->up.empty() || moe->down.empty()) return;  // the load fails
  const auto is_int8 = [&](const kernels::Matrix& matrix) {
    if (kernels::IsFloat(matrix.type) || !UsesPanels(matrix.type)) return false;
    return layer.metadata_only() || matrix.packed();
  };
  moe->gathers =
      moe->scale_inputs || !std::ranges::all_of(moe->gate, is_int8) || !std::ranges::all_of(moe->up, is_int8);
  RowWidths& widths = layer.widths();
  widths.GrowExperts(std::max<int64_t>(std::ssize(moe->up), moe->router.weight.out), moe->chosen, hidden,
                     width);
  if (moe->gathers) RowWidths::Grow(widths.gathered, moe->chosen * hidden);
  if (kernels::HasPanels(moe->down[0].type)) {
    RowWidths::Grow(widths.quantized, moe->chosen * std::max(hidden, width));
  }
}

void BindExperts(const TensorScope& layer, const ExpertNames& names, int64_t experts, int64_t hidden,
                 int64_t width, MixtureOfExperts* moe) {
  const TensorName gate_up{names.gate_up_stacked, "ffn_gate_up_exps.weight"};
  const TensorName down{names.down_stacked, "ffn_down_exps.weight"};
  const auto stacked = [&](TensorName name, int64_t out, int64_t in) {
    std::vector<kernels::Matrix> matrices = layer.Stacked(name, experts, out, in);
    for (kernels::Matrix& matrix : matrices) matrix = layer.InPanels(matrix, WeightUse::kExpert);
    return matrices;
  };
  if (layer.Has(gate_up)) {
    for (const kernels::Matrix& both : layer.Stacked(gate_up, experts, 2 * width, hidden)) {
      moe->gate.push_back(layer.InPanels(kernels::RowsOf(both, 0, width), WeightUse::kExpert));
      moe->up.push_back(layer.InPanels(kernels::RowsOf(both, width, 2 * width), WeightUse::kExpert));
    }
    moe->down = stacked(down, hidden, width);
  } else if (layer.gguf() && !layer.Has({"", "ffn_gate.0.weight"})) {
    if (!names.plain) moe->gate = stacked({"", "ffn_gate_exps.weight"}, width, hidden);
    moe->up = stacked({"", "ffn_up_exps.weight"}, width, hidden);
    moe->down = stacked(down, hidden, width);
  } else {
    for (int64_t e = 0; e < experts && !layer.failed(); ++e) {
      const auto one = [&](std::string_view pattern, int64_t out, int64_t in) {
        const std::string name = fmt::format(fmt::runtime(pattern), e);
        return layer.InPanels(layer.Matrix({name, name}, out, in), WeightUse::kExpert);
      };
      if (!names.plain) moe->gate.push_back(one(layer.gguf() ? "ffn_gate.{}" : names.gate, width, hidden));
      moe->up.push_back(one(layer.gguf() ? "ffn_up.{}" : names.up, width, hidden));
      moe->down.push_back(one(layer.gguf() ? "ffn_down.{}" : names.down, hidden, width));
    }
  }
  moe->expert_panels = layer.expert_panels();
  FinishExperts(layer, hidden, width, moe);
}

}  // namespace quire::runner::models
