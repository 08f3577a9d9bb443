#include "runner/kernels/experts.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/portable_math.h"

namespace quire::runner::kernels {
namespace {

constexpr size_t kRowsPerTask = 16;
constexpr size_t kGroupBestMax = 8;

template <class Fn>
void ForRows(ThreadPool& pool, size_t rows, Fn&& fn) {
  pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    for (size_t row = task * kRowsPerTask; row < std::min(rows, (task + 1) * kRowsPerTask); ++row) fn(row);
  });
}

// Logits to scores: positive, and all but kSqrtSoftplus below 1.
void Score(RoutingRule::Score kind, std::span<float> row) {
  if (kind == RoutingRule::Score::kSigmoid) {
    for (float& value : row) value = Sigmoid(value);
    return;
  }
  if (kind == RoutingRule::Score::kSqrtSoftplus) {
    for (float& value : row) value = std::sqrt(Softplus(value));
    return;
  }
  const float top = *std::ranges::max_element(row);
  float sum = 0;
  for (float& value : row) {
    value = Exp(value - top);
    sum += value;
  }
  for (float& value : row) value /= sum;
}

// The indices of the highest keys, ascending; the lower index among equals. A key that is not a number loses
// to all others. Indices that `allowed` refuses are left out.
template <class Key, class Allowed>
void ChooseHighest(size_t count, const Key& key, const Allowed& allowed, std::span<int32_t> chosen) {
  const auto is_higher = [&](size_t e, int32_t than) {
    const float a = key(e), b = key(static_cast<size_t>(than));
    return a > b || (std::isnan(b) && !std::isnan(a));
  };
  size_t found = 0;  // chosen[0, found) are the highest so far, in order
  for (size_t e = 0; e < count; ++e) {
    if (!allowed(e)) continue;
    if (found == chosen.size() && !is_higher(e, chosen.back())) continue;
    size_t at = found < chosen.size() ? found++ : found - 1;
    for (; at > 0 && is_higher(e, chosen[at - 1]); --at) chosen[at] = chosen[at - 1];
    chosen[at] = static_cast<int32_t>(e);
  }
  std::ranges::sort(chosen);
}

// The sum of the `best` highest keys of a group of `size` experts that begins at `first`.
template <class Key>
float GroupScore(size_t first, size_t size, size_t best, const Key& key) {
  std::array<int32_t, kGroupBestMax> top{};
  const auto chosen = std::span(top).first(std::min({best, size, top.size()}));
  ChooseHighest(
      size, [&](size_t e) { return key(first + e); }, [](size_t) { return true; }, chosen);
  float sum = 0;
  for (const int32_t e : chosen) sum += key(first + static_cast<size_t>(e));
  return sum;
}

void Choose(const RoutingRule& rule, std::span<const float> scores, std::span<int32_t> chosen) {
  const auto key = [&](size_t e) { return scores[e] + (rule.bias.empty() ? 0.0F : rule.bias[e]); };
  if (rule.groups_kept >= rule.groups) {
    return ChooseHighest(
        scores.size(), key, [](size_t) { return true; }, chosen);
  }
  const auto groups = static_cast<size_t>(rule.groups), size = scores.size() / groups;
  std::array<float, kExpertGroupsMax> group_scores{};
  std::array<int32_t, kExpertGroupsMax> group_list{};
  for (size_t g = 0; g < groups; ++g) {
    group_scores[g] = GroupScore(g * size, size, static_cast<size_t>(rule.group_best), key);
  }
  const auto kept = std::span(group_list).first(static_cast<size_t>(rule.groups_kept));
  ChooseHighest(
      groups, [&](size_t g) { return group_scores[g]; }, [](size_t) { return true; }, kept);
  const auto in_kept = [&](size_t e) {
    return std::ranges::find(kept, static_cast<int32_t>(e / size)) != kept.end();
  };
  ChooseHighest(scores.size(), key, in_kept, chosen);
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

// `row` without the logits of `taken`: the highest that is left, and its weight.
float MixedWeight(std::span<const float> row, float jitter, int32_t taken, int32_t* choice) {
  const auto left = [&](size_t e) { return static_cast<int32_t>(e) != taken; };
  ChooseHighest(
      row.size(), [&](size_t e) { return row[e]; }, left, std::span(choice, 1));
  const float top = row[static_cast<size_t>(*choice)];
  float sum = 0;
  for (size_t e = 0; e < row.size(); ++e) {
    const float factor = std::max(std::abs(row[e]), top);
    if (left(e) && !((top - row[e]) / factor > 2 * jitter)) sum += Exp(row[e] - top);
  }
  return 1 / sum;
}

void ChooseByMixer(const RoutingRule& rule, std::span<const float> row, std::span<int32_t> chosen,
                   std::span<float> weights) {
  weights[0] = MixedWeight(row, rule.jitter, -1, chosen.data());
  weights[1] = MixedWeight(row, rule.jitter, chosen[0], &chosen[1]);
  if (chosen[0] < chosen[1]) return;
  std::swap(chosen[0], chosen[1]);
  std::swap(weights[0], weights[1]);
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
  assert(rule.score != RoutingRule::Score::kSparseMixer || chosen == 2);
  assert(chosen >= 1 && chosen <= experts && scores.size() % experts == 0);
  assert(rule.groups >= 1 && rule.groups <= static_cast<int64_t>(kExpertGroupsMax) &&
         rule.experts % rule.groups == 0 && rule.groups_kept >= 1 &&
         rule.groups_kept * (rule.experts / rule.groups) >= rule.chosen);
  const size_t rows = scores.size() / experts;
  routing->expert.resize(rows * chosen);
  routing->weight.resize(rows * chosen);
  ForRows(pool, rows, [&](size_t row) {
    const std::span<float> of_row = scores.subspan(row * experts, experts);
    const auto choice = std::span(routing->expert).subspan(row * chosen, chosen);
    if (rule.score == RoutingRule::Score::kSparseMixer) {
      return ChooseByMixer(rule, of_row, choice, std::span(routing->weight).subspan(row * chosen, chosen));
    }
    Score(rule.score, of_row);
    if (rule.given.empty()) {
      Choose(rule, of_row, choice);
    } else {
      std::ranges::copy(rule.given.subspan(row * chosen, chosen), choice.begin());
      std::ranges::sort(choice);
    }
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

void WeighInputs(ThreadPool& pool, int64_t width, std::span<float> x, Routing* routing) {
  const auto size = static_cast<size_t>(width);
  ForRows(pool, routing->place.size(), [&](size_t choice) {
    float& weight = routing->weight[choice];
    for (float& value : x.subspan(static_cast<size_t>(routing->place[choice]) * size, size)) value *= weight;
    weight = 1;
  });
}

void AddExpertBias(ThreadPool& pool, const Routing& routing, std::span<const float> bias, int64_t width,
                   std::span<float> x) {
  const auto size = static_cast<size_t>(width);
  assert(x.size() == routing.row_at.size() * size);
  ForRows(pool, routing.row_at.size(), [&](size_t place) {
    const auto after = std::ranges::upper_bound(routing.begin, static_cast<int32_t>(place));
    const auto expert = static_cast<size_t>(after - routing.begin.begin()) - 1;
    AddBias(bias.subspan(expert * size, size), x.subspan(place * size, size));
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
