// HybridCache::RemoveRange: plan and take every destination page, then move rows, then let go of the old
// pages.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/sequence_state.h"

namespace quire::cache {
namespace {

// The move of one group's rows. Destination pages are written in ascending order; a row only ever moves down,
// so that a page written in place has already served every earlier destination.
class GroupMove {
 public:
  GroupMove(Pools& pools, const HybridState& held, size_t group, Position begin, Position end)
      : pools_(pools),
        group_(group),
        begin_(begin),
        removed_(end - begin),
        new_end_(held.offset() - removed_) {
    const AttentionGroup& shape = pools.layout.groups[group];
    oldest_ = OldestVisible(shape, new_end_);
    const HybridState::Group& source = held.groups[group];
    const Position oldest_source = Source(oldest_);
    possible_ = oldest_ == new_end_ || (source.present && oldest_source >= held.FirstRow(group));
    first_ = pools.PageOf(std::max(begin, oldest_));
    const bool moves_nothing = oldest_ == new_end_ || begin >= new_end_;
    end_ = moves_nothing ? first_ : std::max(first_, pools.PageEnd(new_end_));
    if (!possible_ || first_ == end_) return;
    for (int64_t index = first_; index < pools.PageEnd(held.offset()); ++index) {
      old_.push_back(source.table.Get(index));
    }
    for (int64_t index = first_; index < end_; ++index) {
      const BlockId page = Old(index);
      const bool in_place = page != kNoBlock && source.table.Exclusive(index);
      new_.push_back(in_place ? page : kNoBlock);
      needed_ += in_place ? 0 : 1;
    }
  }

  GroupMove(GroupMove&&) noexcept = default;
  GroupMove& operator=(GroupMove&&) = delete;
  ~GroupMove() {
    for (const BlockId page : taken_) pools_.pages[group_]->Release(page);
  }

  bool possible() const { return possible_; }
  int64_t needed() const { return needed_; }

  // Takes what Run needs. REQUIRES: needed() pages are available. Throws std::bad_alloc.
  void Reserve(const HybridState& held) {
    BlockPool& pool = *pools_.pages[group_];
    taken_.reserve(static_cast<size_t>(needed_));
    while (static_cast<int64_t>(taken_.size()) < needed_) taken_.push_back(pool.Allocate());
    const PageTable& table = held.groups[group_].table;
    pool.nodes().Reserve(table.PutNodesMax(first_, end_) + table.ClipNodesMax());
  }

  // REQUIRES: reserved. Cannot fail.
  void Run(HybridState& held, const RotateKeys& rotate) {
    BlockPool& pool = *pools_.pages[group_];
    for (int64_t index = first_; index < end_; ++index) {
      BlockId& page = new_[static_cast<size_t>(index - first_)];
      if (page == kNoBlock) {
        page = taken_.back();
        taken_.pop_back();
        const bool keeps_rows = index * pools_.layout.page_tokens < begin_ && Old(index) != kNoBlock;
        if (keeps_rows) {
          std::memcpy(pool.data(page), pool.data(Old(index)), pool.block_bytes());
          pools_.bytes_copied += pool.block_bytes();
        }
      }
      FillPage(index, page, rotate);
    }
    HybridState::Group& group = held.groups[group_];
    for (int64_t index = first_; index < end_; ++index) {
      const BlockId page = new_[static_cast<size_t>(index - first_)];
      if (page != Old(index)) group.table.Put(index, page);
    }
    group.present = true;
    // Rows from `begin` up to there were not moved, or the page in front of it is new.
    if (begin_ <= oldest_) group.intact_from = oldest_;
  }

 private:
  BlockId Old(int64_t index) const {
    const auto at = static_cast<size_t>(index - first_);
    return at < old_.size() ? old_[at] : kNoBlock;
  }
  Position Source(Position position) const { return position < begin_ ? position : position + removed_; }

  void FillPage(int64_t index, BlockId page, const RotateKeys& rotate) {
    const int32_t page_tokens = pools_.layout.page_tokens;
    const Position first = std::max({index * page_tokens, begin_, oldest_});
    const Position end = std::min((index + 1) * page_tokens, new_end_);
    if (first >= end) return;
    const AttentionGroup& shape = pools_.layout.groups[group_];
    const size_t row = RowBytes(pools_.layout, group_);
    BlockPool& pool = *pools_.pages[group_];
    for (Position p = first; p < end;) {
      const Position source = p + removed_;
      const Position run = std::min(end - p, page_tokens - source % page_tokens);
      const std::byte* const from = pool.data(Old(pools_.PageOf(source)));
      std::byte* const to = pool.data(page);
      const auto move = [&](size_t offset, size_t bytes) {
        std::memmove(to + offset + bytes * static_cast<size_t>(p % page_tokens),
                     from + offset + bytes * static_cast<size_t>(source % page_tokens),
                     bytes * static_cast<size_t>(run));
      };
      ForEachHead([&](size_t offset, int32_t, int32_t, bool keys) {
        const bool rows = shape.latent > 0 || (!keys && shape.element != ElementType::kI16);
        if (rows) return move(offset, row);
        if (!keys) return MovePairedValues(to + offset, p, from + offset, source, run);
        ForEachKeyPlane(pools_.layout, group_,
                        [&](size_t plane, size_t bytes) { move(offset + plane, bytes); });
      });
      p += run;
    }
    ForEachHead([&](size_t offset, int32_t layer, int32_t head, bool keys) {
      if (!keys || !rotate) return;
      std::byte* const at = pool.data(page) + offset;
      const auto first_row = static_cast<int32_t>(first % page_tokens);
      rotate(
          {group_, layer, head, at, first_row, static_cast<int32_t>(end - first), first + removed_, first});
    });
  }

  // Moves `run` tokens from `source` on, whose numbers lie between those of others; ascending: a page may be
  // its own source.
  void MovePairedValues(std::byte* to, Position p, const std::byte* from, Position source,
                        Position run) const {
    const int32_t page_tokens = pools_.layout.page_tokens;
    for (Position token = 0; token < run; ++token) {
      const auto place = [&](Position first) {
        return PlaceOfValue(pools_.layout, group_, static_cast<int32_t>((first + token) % page_tokens));
      };
      const ValuePlace of_old = place(source), of_new = place(p);
      std::memmove(to + of_new.scale, from + of_old.scale, of_new.scale_bytes);
      for (size_t i = 0; i < of_new.count; ++i) {
        std::memmove(to + of_new.first + i * of_new.stride, from + of_old.first + i * of_old.stride,
                     of_new.bytes);
      }
    }
  }

  template <class Visit>
  void ForEachHead(const Visit& visit) const {
    const AttentionGroup& shape = pools_.layout.groups[group_];
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      for (int32_t head = 0; head < shape.kv_heads; ++head) {
        visit(KeyOffset(pools_.layout, group_, layer, head), layer, head, true);
        if (shape.latent == 0) visit(ValueOffset(pools_.layout, group_, layer, head), layer, head, false);
      }
    }
  }

  Pools& pools_;
  const size_t group_;
  const Position begin_;
  const Position removed_;
  const Position new_end_;
  Position oldest_ = 0;  // what the next token will see
  bool possible_ = false;
  int64_t first_ = 0;  // destination pages [first_, end_)
  int64_t end_ = 0;
  int64_t needed_ = 0;
  std::vector<BlockId> old_;  // from first_ on
  std::vector<BlockId> new_;  // [end_ - first_], kNoBlock until Run
  std::vector<BlockId> taken_;
};

}  // namespace

Result<void> HybridCache::RemoveRange(Sequence& sequence, Position begin, Position end,
                                      const RotateKeys& rotate) try {
  SequenceState& state = *sequence.state_;
  HybridState& held = state.held;
  if (state.in_step || state.draft) return Fail(ErrorCode::kInvalid, "removal inside a step or a draft");
  if (begin < 0 || begin >= end || end > held.offset()) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("removal of [{}, {}) from a sequence of {}", begin, end, held.offset()));
  }
  if (held.recurrent()) return Fail(ErrorCode::kUnsupported, "recurrent state cannot forget tokens");
  const auto in_blocks = [](const AttentionGroup& group) { return group.stride > 1; };
  if (std::ranges::any_of(pools_->layout.groups, in_blocks)) {
    return Fail(ErrorCode::kUnsupported, "compressed keys cannot forget tokens");
  }
  std::vector<GroupMove> moves;
  moves.reserve(held.groups.size());
  Demand demand = NoDemand();
  for (size_t g = 0; g < held.groups.size(); ++g) {
    moves.emplace_back(*pools_, held, g, begin, end);
    if (!moves.back().possible()) {
      return Fail(ErrorCode::kUnsupported, "a window has slid past what it would show");
    }
    demand.pages[g].need = moves.back().needed();
  }
  if (!MakeRoom(demand)) return Fail(ErrorCode::kOutOfPages, Refreshed(demand).ToString());
  for (GroupMove& move : moves) move.Reserve(held);
  for (GroupMove& move : moves) move.Run(held, rotate);
  held.LimitExact(begin);
  held.RestAt(held.offset() - (end - begin), SlotRef());
  state.InvalidateViews();
  state.DiscardCaptures(begin);
  return {};
} catch (const std::bad_alloc&) {
  return NoMemory();
}

}  // namespace quire::cache
