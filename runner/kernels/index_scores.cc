#include "runner/kernels/index_scores.h"

#include <algorithm>
#include <cstring>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/index_scores.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/rows.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

constexpr size_t kIndexTile = 64;  // keys

class IndexScorer {
 public:
  IndexScorer(const AttentionLayer& at, const IndexRule& rule, const IndexTask& task)
      : at_(at),
        rule_(rule),
        task_(task),
        dim_(static_cast<size_t>(at.layout->groups[at.group].head_dim)),
        heads_(static_cast<size_t>(rule.heads)),
        lists_(static_cast<size_t>(rule.lists)) {}

  void Run() {
    for (cache::Position first = task_.first; first < task_.last; first += kIndexTile) {
      const auto count = static_cast<size_t>(std::min<cache::Position>(kIndexTile, task_.last - first));
      const size_t most = task_.rows * heads_;
      for (size_t begin = 0; begin < most; begin += kIndexRows) {
        const size_t end = std::min(begin + kIndexRows, most);
        Multiply(first, count, begin, end);
        for (size_t i = begin; i < end; ++i) Add(first, count, i, products_ + (i - begin) * kIndexTile);
      }
    }
  }

 private:
  // Products of query heads [begin, end) of all rows with the keys.
  void Multiply(cache::Position first, size_t count, size_t begin, size_t end) {
    const cache::AttentionGroup& group = at_.layout->groups[at_.group];
    size_t done = 0;
    while (done < count) {
      const cache::Position key = first + static_cast<cache::Position>(done);
      const cache::Position position = (key + 1) * group.stride - 1;
      const std::byte* const rows = PlaceOfRow(at_, task_.sequence, position);
      // Keys of the same page follow each other.
      const cache::Position page_end =
          position - position % at_.layout->page_tokens + at_.layout->page_tokens;
      const auto in_page = static_cast<size_t>((page_end - 1 - position) / group.stride + 1);
      const size_t some = std::min(in_page, count - done);
      DotBlock<F32Row>(task_.q + begin * dim_, dim_, end - begin, rows, F32Row::Bytes(dim_), some, dim_,
                       products_ + done, kIndexTile);
      done += some;
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
  alignas(64) float products_[kIndexRows * kIndexTile];
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
