#include "runner/models/moe.h"

#include <fmt/format.h>

#include "runner/kernels/elementwise.h"

namespace quire::runner::models {
namespace {

// y [places, out] = rows of x [places, in] times their expert's matrix.
void RunExperts(Pass& pass, std::span<const kernels::Matrix> experts, std::span<const float> x,
                std::span<float> y) {
  const kernels::Routing& routing = pass.work.routing;
  std::vector<kernels::MatMulPart>& parts = pass.work.parts;
  parts.clear();
  for (size_t e = 0; e < experts.size(); ++e) {
    if (routing.begin[e] == routing.begin[e + 1]) continue;
    parts.push_back({.weight = experts[e], .begin = routing.begin[e], .end = routing.begin[e + 1]});
  }
  kernels::MatMulParts(pass.pool, x, parts, y);
}

}  // namespace

void MixtureOfExperts::Run(Pass& pass, std::span<const float> router_x, std::span<const float> x,
                           std::span<float> y) const {
  const auto experts = static_cast<int64_t>(gate.size());
  const int64_t hidden = gate[0].in, width = gate[0].out, places = pass.rows() * chosen;
  const std::span<float> scores = pass.work.scores.Get(pass.rows() * experts);
  router.Run(pass.pool, router_x, pass.rows(), scores);
  kernels::Route(pass.pool,
                 {.score = score,
                  .experts = experts,
                  .chosen = chosen,
                  .bias = choice_bias,
                  .normalize = normalize,
                  .epsilon = normalize_eps,
                  .scale = scale,
                  .per_expert = expert_scale},
                 scores, &pass.work.routing);
  const std::span<float> in = pass.work.expert_in.Get(places * hidden);
  const std::span<float> out = pass.work.expert_out.Get(places * hidden);
  const std::span<float> gated = pass.work.gate.Get(places * width), wide = pass.work.up.Get(places * width);
  kernels::GatherRows(pass.pool, pass.work.routing, x, hidden, in);
  RunExperts(pass, gate, in, gated);
  RunExperts(pass, up, in, wide);
  Gate(pass.pool, activation, wide, gated);
  RunExperts(pass, down, gated, out);
  kernels::CombineRows(pass.pool, pass.work.routing, chosen, out, hidden, y);

  if (!shared_gate) return;
  const std::span<float> extra = pass.work.shared.Get(pass.rows() * hidden);
  const std::span<float> open = pass.work.scores.Get(pass.rows());
  shared.Run(pass, x, extra);
  shared_gate.Run(pass.pool, x, pass.rows(), open);
  kernels::SigmoidMulRows(pass.pool, open, extra);
  kernels::Add(pass.pool, extra, y);
}

void BindExperts(const TensorScope& layer, const ExpertNames& names, int64_t experts, int64_t hidden,
                 int64_t width, MixtureOfExperts* moe) {
  const TensorName gate_up{names.gate_up_stacked, "ffn_gate_up_exps.weight"};
  const TensorName down{names.down_stacked, "ffn_down_exps.weight"};
  if (layer.Has(gate_up)) {
    for (const kernels::Matrix& both : layer.Stacked(gate_up, experts, 2 * width, hidden)) {
      moe->gate.push_back(kernels::RowsOf(both, 0, width));
      moe->up.push_back(kernels::RowsOf(both, width, 2 * width));
    }
    moe->down = layer.Stacked(down, experts, hidden, width);
  } else if (layer.gguf()) {
    moe->gate = layer.Stacked({"", "ffn_gate_exps.weight"}, experts, width, hidden);
    moe->up = layer.Stacked({"", "ffn_up_exps.weight"}, experts, width, hidden);
    moe->down = layer.Stacked(down, experts, hidden, width);
  } else {
    for (int64_t e = 0; e < experts && !layer.failed(); ++e) {
      const auto one = [&](std::string_view pattern, int64_t out, int64_t in) {
        const std::string name = fmt::format(fmt::runtime(pattern), e);
        return layer.Matrix({name, ""}, out, in);
      };
      moe->gate.push_back(one(names.gate, width, hidden));
      moe->up.push_back(one(names.up, width, hidden));
      moe->down.push_back(one(names.down, hidden, width));
    }
  }
}

}  // namespace quire::runner::models
