#include "runner/kernels/index_scores.h"

#include <algorithm>
#include <cstddef>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/index_scores.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/attention_tiles.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

class IndexScorer {
 public:
  IndexScorer(const AttentionLayer& at, const IndexRule& rule, const IndexTask& task)
      : at_(at),
        rule_(rule),
        task_(task),
        dim_(static_cast<size_t>(at.layout->groups[at.group].head_dim)),
        heads_(static_cast<size_t>(rule.heads)),
        lists_(static_cast<size_t>(rule.lists)) {
    for (size_t i = 0; i < kTileVectors; ++i) {
      columns_[i] = {reinterpret_cast<const std::byte*>(keys_ + i * kLanes), kTile * sizeof(float)};
    }
  }

  void Run() {
    constexpr auto kStep = static_cast<cache::Position>(kTile);
    for (cache::Position first = task_.first; first < task_.last; first += kStep) {
      const auto count = static_cast<size_t>(std::min(kStep, task_.last - first));
      Transpose(first, count);
      const size_t most = task_.rows * heads_, vectors = (count + kLanes - 1) / kLanes;
      for (size_t begin = 0; begin < most; begin += kIndexRows) {
        const size_t end = std::min(begin + kIndexRows, most);
        ScoreKeys(task_.q + begin * dim_, end - begin, dim_, columns_, vectors, products_, ahead_);
        for (size_t i = begin; i < end; ++i) Add(first, count, i, products_ + (i - begin) * kTile);
      }
    }
  }

 private:
  // The keys, [dim, kTile]: scores of several are computed at once. A few at a time, whose rows and places
  // stay in the first-level cache.
  void Transpose(cache::Position first, size_t count) {
    constexpr size_t kFew = 16;
    const cache::Position stride = at_.layout->groups[at_.group].stride;
    const float* rows[kFew];
    for (size_t key = 0; key < count; key += kFew) {
      for (size_t i = 0; i < kFew; ++i) {
        // Behind the last key, that key again: its scores are not looked at.
        const auto place = static_cast<cache::Position>(std::min(key + i, count - 1));
        const std::byte* const row = PlaceOfRow(at_, task_.sequence, (first + place + 1) * stride - 1);
        rows[i] = reinterpret_cast<const float*>(row);
      }
      for (size_t c = 0; c < dim_; ++c) {
        float* const to = keys_ + c * kTile + key;
        for (size_t i = 0; i < kFew; ++i) to[i] = rows[i][c];
      }
    }
  }

  // The share of query head `i` of all rows' in the scores.
  void Add(cache::Position first, size_t count, size_t i, const float* products) const {
    const size_t row = i / heads_, head = i % heads_, of_list = heads_ / lists_;
    const float weight = task_.weights == nullptr ? 1 : task_.weights[i];
    float* const to = task_.scores + (row * lists_ + head / of_list) * task_.stride + first;
    if (head % of_list == 0) std::fill_n(to, count, 0.0F);
    if (rule_.relu) {
      for (size_t k = 0; k < count; ++k) to[k] += weight * (products[k] > 0 ? products[k] : 0);
    } else {
      for (size_t k = 0; k < count; ++k) to[k] += weight * products[k];
    }
    if (head % of_list + 1 < of_list) return;
    for (size_t k = 0; k < count; ++k) to[k] *= rule_.scale;
  }

  const AttentionLayer& at_;
  const IndexRule& rule_;
  const IndexTask& task_;
  const size_t dim_, heads_, lists_;
  MemoryAhead ahead_;
  KeyColumn columns_[kTileVectors];
  alignas(64) float keys_[kMaxHeadDim * kTile];
  alignas(64) float products_[kIndexRows * kTile];
};

void ScoreIndexKeysOfTarget(const AttentionLayer& at, const IndexRule& rule, const IndexTask& task) {
  IndexScorer(at, rule, task).Run();
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(ScoreIndexKeysOfTarget);

}  // namespace

void ScoreIndexKeys(const AttentionLayer& at, const IndexRule& rule, const IndexTask& task) {
  HWY_DYNAMIC_DISPATCH(ScoreIndexKeysOfTarget)(at, rule, task);
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
