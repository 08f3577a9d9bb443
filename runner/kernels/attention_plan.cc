#include <algorithm>
#include <cassert>

#include "runner/kernels/attention.h"

namespace quire::runner::kernels {
namespace {

// Sums of pieces, at most, 16 MiB; items whose sums would take more are not cut: those of 4 sequences with 64
// heads of 128 from 130,000 positions on.
constexpr size_t kMostSums = size_t{1} << 22;

// Rows of an item where there are few in all.
constexpr int32_t kLeast = 12;

cache::Position SegmentBegin(cache::Position position) {
  return position - position % AttentionPlan::kSegment;
}

// The segments [begin, end) whose keys an item's rows see.
struct Segments {
  Segments(const AttentionLayer& at, const AttentionPlan::Item& item, int32_t share) {
    const auto sequence = static_cast<size_t>(item.sequence);
    const cache::Position offset = at.step->offset(sequence);
    const auto pages = at.step->Pages(sequence, at.group);
    cache::Position first = cache::OldestVisible(at.layout->groups[at.group], offset + item.begin / share);
    if (!pages.empty()) first = std::max(first, pages.front().first);
    begin = SegmentBegin(first);
    end = SegmentBegin(at.SeenEnd(sequence, (item.end - 1) / share) - 1) + AttentionPlan::kSegment;
  }
  size_t count() const { return static_cast<size_t>((end - begin) / AttentionPlan::kSegment); }

  cache::Position begin, end;
};

}  // namespace

int64_t AttentionPlan::SumsBytesMax(const cache::AttentionGroup& group, int32_t threads,
                                    cache::Position positions) {
  // Fewer than two items for each thread are cut. They are that few only where they have no more than the
  // least rows.
  const size_t rows = 2 * static_cast<size_t>(std::max(threads, 1)) * kLeast;
  const size_t segments = static_cast<size_t>(positions) / kSegment + 2;
  const size_t sums = rows * segments * SumsOfRow(static_cast<size_t>(group.value_dim()));
  return static_cast<int64_t>(std::min(sums, kMostSums) * sizeof(float));
}

void AttentionPlan::Prepare(std::span<const int32_t> row_begin, int32_t heads,
                            const cache::AttentionGroup& group, int32_t threads) {
  const int32_t kv_heads = group.kv_heads;
  assert(kv_heads > 0 && heads % kv_heads == 0);
  heads_ = heads;
  items_.clear();
  // A few tasks for each thread, so that none waits long for the last.
  const int32_t most = std::min(kItemRows, kItemNumbers / group.head_dim);
  const int64_t all = int64_t{row_begin.back()} * heads, tasks = int64_t{4} * std::max(threads, 1);
  const int64_t even = (all + tasks - 1) / tasks;
  const auto rows =
      static_cast<int32_t>(std::clamp<int64_t>((even + kLeast - 1) / kLeast * kLeast, kLeast, most));
  for (size_t i = 0; i + 1 < row_begin.size(); ++i) {
    const int32_t queries = (row_begin[i + 1] - row_begin[i]) * (heads / kv_heads);
    for (int32_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      for (int32_t begin = 0; begin < queries; begin += rows) {
        items_.push_back({static_cast<int32_t>(i), kv_head, begin, std::min(begin + rows, queries)});
      }
    }
  }
}

std::span<const AttentionPlan::Piece> AttentionPlan::Divide(const AttentionLayer& at, int32_t threads) {
  pieces_.clear();
  if (threads < 2 || items_.empty() || items_.size() >= 2 * static_cast<size_t>(threads)) return {};
  const cache::AttentionGroup& group = at.layout->groups[at.group];
  const int32_t share = heads_ / group.kv_heads;
  const size_t row_sums = SumsOfRow(static_cast<size_t>(group.value_dim()));
  size_t all = 0, most = 0, sums = 0;
  for (const Item& item : items_) {
    const size_t count = Segments(at, item, share).count();
    all += count;
    most = std::max(most, count);
    sums += count * static_cast<size_t>(item.end - item.begin) * row_sums;
  }
  if (most < 2 || sums > kMostSums) return {};
  if (sums_.size() < sums) sums_.resize(sums);
  const size_t pieces = 4 * static_cast<size_t>(threads);
  const auto length = static_cast<cache::Position>((all + pieces - 1) / pieces) * kSegment;
  float* to = sums_.data();
  for (size_t i = 0; i < items_.size(); ++i) {
    const Segments segments(at, items_[i], share);
    const size_t segment_sums = static_cast<size_t>(items_[i].end - items_[i].begin) * row_sums;
    for (cache::Position begin = segments.begin; begin < segments.end; begin += length) {
      const cache::Position end = std::min(begin + length, segments.end);
      pieces_.push_back({.item = i, .begin = begin, .end = end, .sums = to});
      to += static_cast<size_t>((end - begin) / kSegment) * segment_sums;
    }
  }
  return pieces_;
}

std::span<const AttentionPlan::Piece> AttentionPlan::PiecesOf(size_t item) const {
  const auto [begin, end] = std::ranges::equal_range(pieces_, item, {}, &Piece::item);
  return {begin, end};
}

}  // namespace quire::runner::kernels
