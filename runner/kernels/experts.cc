#include "runner/kernels/experts.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runner/kernels/elementwise.h"

namespace quire::runner::kernels {
namespace {

constexpr size_t kRowsPerTask = 16;

template <class Fn>
void ForRows(ThreadPool& pool, size_t rows, Fn&& fn) {
  pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    for (size_t row = task * kRowsPerTask; row < std::min(rows, (task + 1) * kRowsPerTask); ++row) fn(row);
  });
}

// Logits to scores in (0, 1).
void Score(RoutingRule::Score kind, std::span<float> row) {
  if (kind == RoutingRule::Score::kSigmoid) {
    for (float& value : row) value = 1.0F / (1.0F + std::exp(-value));
    return;
  }
  const float top = *std::ranges::max_element(row);
  float sum = 0;
  for (float& value : row) {
    value = std::exp(value - top);
    sum += value;
  }
  for (float& value : row) value /= sum;
}

// The experts with the highest scores, ascending. A number that is none loses to all others.
void Choose(const RoutingRule& rule, std::span<const float> scores, std::span<int32_t> chosen) {
  const auto key = [&](size_t e) { return scores[e] + (rule.bias.empty() ? 0.0F : rule.bias[e]); };
  for (size_t c = 0; c < chosen.size(); ++c) {
    int32_t best = -1;
    for (size_t e = 0; e < scores.size(); ++e) {
      const auto index = static_cast<int32_t>(e);
      if (std::ranges::find(chosen.first(c), index) != chosen.begin() + static_cast<ptrdiff_t>(c)) continue;
      if (best < 0 || key(e) > key(static_cast<size_t>(best)) ||
          (std::isnan(key(static_cast<size_t>(best))) && !std::isnan(key(e)))) {
        best = index;
      }
    }
    chosen[c] = best;
  }
  std::ranges::sort(chosen);
}

void Weigh(const RoutingRule& rule, std::span<const float> scores, std::span<const int32_t> chosen,
           std::span<float> weights) {
  float sum = 0;
  for (size_t c = 0; c < chosen.size(); ++c) {
    weights[c] = scores[static_cast<size_t>(chosen[c])];
    sum += weights[c];
  }
  for (size_t c = 0; c < chosen.size(); ++c) {
    if (rule.normalize) weights[c] /= sum + rule.epsilon;
    weights[c] *= rule.scale;
    if (!rule.per_expert.empty()) weights[c] *= rule.per_expert[static_cast<size_t>(chosen[c])];
  }
}

// A stable counting sort of the choices by expert.
void Place(size_t experts, size_t chosen, Routing* routing) {
  routing->begin.assign(experts + 1, 0);
  for (const int32_t expert : routing->expert) ++routing->begin[static_cast<size_t>(expert) + 1];
  for (size_t e = 0; e < experts; ++e) routing->begin[e + 1] += routing->begin[e];
  routing->row_at.resize(routing->expert.size());
  routing->place.resize(routing->expert.size());
  std::vector<int32_t> next(routing->begin.begin(), routing->begin.end() - 1);
  for (size_t i = 0; i < routing->expert.size(); ++i) {
    const int32_t place = next[static_cast<size_t>(routing->expert[i])]++;
    routing->place[i] = place;
    routing->row_at[static_cast<size_t>(place)] = static_cast<int32_t>(i / chosen);
  }
}

}  // namespace

void Route(ThreadPool& pool, const RoutingRule& rule, std::span<float> scores, Routing* routing) {
  const auto experts = static_cast<size_t>(rule.experts), chosen = static_cast<size_t>(rule.chosen);
  assert(chosen >= 1 && chosen <= experts && scores.size() % experts == 0);
  const size_t rows = scores.size() / experts;
  routing->expert.resize(rows * chosen);
  routing->weight.resize(rows * chosen);
  ForRows(pool, rows, [&](size_t row) {
    const std::span<float> of_row = scores.subspan(row * experts, experts);
    const auto choice = std::span(routing->expert).subspan(row * chosen, chosen);
    Score(rule.score, of_row);
    Choose(rule, of_row, choice);
    Weigh(rule, of_row, choice, std::span(routing->weight).subspan(row * chosen, chosen));
  });
  Place(experts, chosen, routing);
}

void GatherRows(ThreadPool& pool, const Routing& routing, std::span<const float> x, int64_t width,
                std::span<float> to) {
  const auto size = static_cast<size_t>(width);
  ForRows(pool, routing.row_at.size(), [&](size_t place) {
    std::copy_n(x.data() + static_cast<size_t>(routing.row_at[place]) * size, size, to.data() + place * size);
  });
}

void CombineRows(ThreadPool& pool, const Routing& routing, int64_t chosen, std::span<const float> from,
                 int64_t width, std::span<float> y) {
  const auto size = static_cast<size_t>(width), count = static_cast<size_t>(chosen);
  ForRows(pool, routing.expert.size() / count, [&](size_t row) {
    const std::span<float> sum = y.subspan(row * size, size);
    std::ranges::fill(sum, 0.0F);
    for (size_t i = row * count; i < (row + 1) * count; ++i) {
      MulAdd(routing.weight[i], from.subspan(static_cast<size_t>(routing.place[i]) * size, size), sum);
    }
  });
}

}  // namespace quire::runner::kernels
