// The way of an item's query rows through the keys of its sequence: an online softmax over tiles of keys, in
// segments that are summed for themselves. Compiled once per SIMD target, by each of attention_float.cc,
// attention_int16.cc and attention_int8.cc.

#if defined(QUIRE_RUNNER_KERNELS_ATTENTION_TASK_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_ATTENTION_TASK_INL_
#undef QUIRE_RUNNER_KERNELS_ATTENTION_TASK_INL_
#else
#define QUIRE_RUNNER_KERNELS_ATTENTION_TASK_INL_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "runner/kernels/attention_int16.inl"
#include "runner/kernels/attention_int8.inl"
#include "runner/kernels/attention_softmax.inl"
#include "runner/kernels/attention_tiles.inl"
#include "runner/kernels/attention_work.h"
#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Query rows of one item on their way through the keys.
struct OnlineSoftmaxState {
  alignas(64) float scores[kItemRows * kTile];  // [rows, kTile]
  alignas(64) float query[kItemNumbers];        // [rows, dim], in units of log2 of a weight
  alignas(64) float sum[kItemNumbers];          // [rows, value_dim] of weighted values, this segment's
  alignas(64) float total[kItemNumbers];        // the same of earlier segments
  alignas(
      64) float keys[kTile * kMaxLatentKeyDim];   // [dim, kTile] of the tile; latent: its rows [kTile, dim]
  alignas(64) float values[kTile * kMaxHeadDim];  // [kTile, value_dim] of the tile
  alignas(64) float keep[kItemRows];              // what the tile leaves of the sums so far
  cache::Position oldest[kItemRows], end[kItemRows];  // of the first key that a row sees; behind its last
  RowSums segment[kItemRows], all[kItemRows];
  KeyColumn converted[kTileVectors];  // of `keys`
};

alignas(64) inline constexpr std::array<float, kItemRows> kKeepAll = [] {
  std::array<float, kItemRows> ones;
  ones.fill(1);
  return ones;
}();

// Tiles: FloatTiles, Int16Tiles or Int8Tiles.
template <class Tiles>
class AttentionTask {
  static constexpr bool kInt8 = std::is_same_v<Tiles, Int8Tiles>;
  static constexpr bool kIntegers = std::is_same_v<Tiles, Int16Tiles> || kInt8;

 public:
  AttentionTask(const AttentionWork& work, const AttentionPlan::Item& item)
      : at_(work.at),
        g_(work.geometry),
        scoring_(work.scoring),
        sequence_(static_cast<size_t>(item.sequence)),
        kv_head_(static_cast<size_t>(item.kv_head)),
        begin_(static_cast<size_t>(item.begin)),
        rows_(static_cast<size_t>(item.end - item.begin)),
        pages_(at_.step->Pages(sequence_, at_.group)),
        key_offset_(KeyOffset(*at_.layout, at_.group, at_.layer, static_cast<int32_t>(kv_head_))),
        value_offset_(ValueOffset(*at_.layout, at_.group, at_.layer, static_cast<int32_t>(kv_head_))),
        tiles_(work.geometry.group.element) {}

  void Run(const float* q, float* out) {
    Begin(q);
    const cache::Position end = s_.end[rows_ - 1];
    for (cache::Position from = SegmentOf(FirstKey()); from < end; from += kSegment) {
      RunSegment(from);
      for (size_t r = 0; r < rows_; ++r) AddSegment(s_.segment[r], g_.value_dim, s_.all[r]);
    }
    WriteResults(out);
  }

  // The sums of a piece's segments, for Finish().
  void RunPiece(const float* q, const AttentionPlan::Piece& piece) {
    Begin(q);
    float* to = piece.sums;
    for (cache::Position from = piece.begin; from < piece.end; from += kSegment) {
      RunSegment(from);
      for (size_t r = 0; r < rows_; ++r, to += AttentionPlan::SumsOfRow(g_.value_dim)) {
        std::copy_n(s_.segment[r].values, g_.value_dim, to);
        to[g_.value_dim] = s_.segment[r].max;
        to[g_.value_dim + 1] = s_.segment[r].weight;
      }
    }
  }

  // What Run() gives, from the sums of the pieces of this item, which follow each other.
  void Finish(const float* q, std::span<const AttentionPlan::Piece> pieces, float* out) {
    Begin(q);
    for (const AttentionPlan::Piece& piece : pieces) {
      float* sums = piece.sums;
      for (cache::Position from = piece.begin; from < piece.end; from += kSegment) {
        for (size_t r = 0; r < rows_; ++r, sums += AttentionPlan::SumsOfRow(g_.value_dim)) {
          const RowSums segment = {
              .max = sums[g_.value_dim], .weight = sums[g_.value_dim + 1], .values = sums};
          AddSegment(segment, g_.value_dim, s_.all[r]);
        }
      }
    }
    WriteResults(out);
  }

 private:
  static cache::Position SegmentOf(cache::Position position) { return position - position % kSegment; }
  // Which of the batch's [rows, heads] the r-th query is.
  size_t HeadIndex(size_t r) const {
    const size_t row = static_cast<size_t>(at_.row_begin[sequence_]) + (begin_ + r) / g_.share;
    return row * g_.heads + kv_head_ * g_.share + (begin_ + r) % g_.share;
  }
  cache::Position PositionOf(size_t r) const {
    return at_.step->offset(sequence_) + static_cast<cache::Position>((begin_ + r) / g_.share);
  }
  // The first key of all rows.
  cache::Position FirstKey() const {
    return pages_.empty() ? s_.oldest[0] : std::max(s_.oldest[0], pages_.front().first);
  }

  void Begin(const float* q) {
    const float factor = QueryFactor(scoring_);
    for (size_t r = 0; r < rows_; ++r) {
      ForEachElement(
          g_.dim, s_.query + r * g_.dim,
          [factor](VF32 v) HWY_ATTR { return hn::Mul(v, hn::Set(F32(), factor)); },
          q + HeadIndex(r) * g_.dim);
      if constexpr (kIntegers) tiles_.SetQuery(r, s_.query + r * g_.dim, g_.dim);
      const auto row = static_cast<int32_t>((begin_ + r) / g_.share);
      s_.oldest[r] = cache::OldestVisible(g_.group, at_.step->offset(sequence_) + row);
      s_.end[r] = at_.SeenEnd(sequence_, row);
      s_.segment[r] = {.values = s_.sum + r * g_.value_dim};
      s_.all[r] = {.values = s_.total + r * g_.value_dim};
      if (!scoring_.sinks.empty()) {
        s_.all[r].weight = 1;
        s_.all[r].max = scoring_.sinks[HeadIndex(r) % g_.heads] * kLog2OfE;
      }
    }
    std::fill_n(s_.total, rows_ * g_.value_dim, 0.0F);
    for (size_t i = 0; i < kTileVectors; ++i) {
      s_.converted[i] = {reinterpret_cast<const std::byte*>(s_.keys + i * kLanes), kTile * sizeof(float)};
    }
  }

  void WriteResults(float* out) const {
    for (size_t r = 0; r < rows_; ++r) {
      const VF32 weight = hn::Set(F32(), s_.all[r].weight);
      ForEachElement(
          g_.value_dim, out + HeadIndex(r) * g_.value_dim,
          [weight](VF32 v) HWY_ATTR { return hn::Div(v, weight); }, s_.all[r].values);
    }
  }

  // Sums of the keys at [from, from + kSegment) that rows see.
  void RunSegment(cache::Position from) {
    std::fill_n(s_.sum, rows_ * g_.value_dim, 0.0F);
    for (size_t r = 0; r < rows_; ++r) s_.segment[r].weight = 0;
    const cache::Position begin = std::max(from, FirstKey());
    const cache::Position end = std::min(from + kSegment, s_.end[rows_ - 1]);
    constexpr auto kStep = static_cast<cache::Position>(kTile);
    TilePart parts[kTile], later[kTile];
    size_t count = PartsOf(begin, std::min(end, begin - begin % kStep + kStep), parts);
    for (cache::Position tile = begin - begin % kStep; tile < end; tile += kStep) {
      const cache::Position next = tile + kStep;
      const size_t later_count = next < end ? PartsOf(next, std::min(end, next + kStep), later) : 0;
      LookAhead({later, later_count});
      if (count > 0) Tile(tile, {parts, count});
      std::copy_n(later, later_count, parts);
      count = later_count;
    }
  }

  // The parts of the keys at [begin, end), of one tile.
  size_t PartsOf(cache::Position begin, cache::Position end, TilePart* parts) const {
    const cache::Position tile = begin - begin % static_cast<cache::Position>(kTile);
    size_t count = 0;
    auto index = static_cast<size_t>(begin / g_.page_tokens - pages_.front().first / g_.page_tokens);
    for (; index < pages_.size() && pages_[index].first < end; ++index) {
      const cache::PageView& page = pages_[index];
      const cache::Position first = std::max(begin, page.first);
      const cache::Position last = std::min(end, page.first + page.tokens);
      if (first >= last) continue;
      parts[count++] = {.page = &page,
                        .first = static_cast<size_t>(first - tile),
                        .last = static_cast<size_t>(last - tile),
                        .token = static_cast<size_t>(first % g_.page_tokens)};
    }
    return count;
  }

  // The memory of these keys and values is what comes next. A few rows take it at the speed of memory: its
  // beginnings are then all that the processor does not find itself.
  void LookAhead(std::span<const TilePart> parts) {
    constexpr size_t kBeginning = 512;
    const bool few = rows_ < kConvertRows;
    ahead_.Clear();
    for (const TilePart& part : parts) {
      const size_t all = (part.last - part.first) * tiles_.Bytes(g_.dim);
      const size_t bytes = few ? std::min(all, kBeginning) : all;
      const size_t skip = part.token * tiles_.Bytes(g_.dim);
      ahead_.Add(part.page->base + key_offset_ + skip, bytes);
      if (g_.group.latent == 0) ahead_.Add(part.page->base + value_offset_ + skip, bytes);
    }
    ahead_.Divide(1 + rows_ / kScoreRows + rows_ / kValueRows);
    if (few) ahead_.Next();
  }

  // The keys of a tile whose first key would be at position `tile`.
  void Tile(cache::Position tile, std::span<const TilePart> parts) {
    const ScoreColumns columns = {.begin = parts.front().first / kLanes * kLanes,
                                  .end = (parts.back().last + kLanes - 1) / kLanes * kLanes,
                                  .first = parts.front().first,
                                  .last = parts.back().last};
    if constexpr (kIntegers) {
      IntegerTile(tile, parts, columns);
    } else {
      FloatTile(tile, parts, columns);
    }
  }

  void FloatTile(cache::Position tile, std::span<const TilePart> parts, const ScoreColumns& columns) {
    const bool in_place = rows_ < kConvertRows && tiles_.are_float32();
    if (g_.group.latent > 0) {
      ScoreLatent(parts, in_place);
    } else {
      ScoreTransposed(parts, columns, in_place);
    }
    WeighTile(tile, columns);
    if (in_place) {
      AddInPlace(parts);
    } else {
      AddConverted(parts);
    }
  }

  const std::byte* RowsOf(const TilePart& part, size_t offset) const {
    return part.page->base + offset + part.token * tiles_.Bytes(g_.dim);
  }

  void ScoreTransposed(std::span<const TilePart> parts, const ScoreColumns& columns, bool in_place) {
    const size_t vectors = (columns.end - columns.begin) / kLanes;
    float* const scores = s_.scores + columns.begin;
    if (static_cast<size_t>(g_.page_tokens) % kLanes == 0) {
      KeyColumn keys[kTileVectors];
      size_t count = 0;
      for (const TilePart& part : parts) {
        const std::byte* const head = part.page->base + key_offset_;
        const size_t before = part.first % kLanes;  // of the first vector, not seen
        for (size_t i = 0; i < before + part.last - part.first; i += kLanes) {
          keys[count++] = {head + tiles_.Bytes(part.token - before + i),
                           tiles_.Bytes(static_cast<size_t>(g_.page_tokens))};
        }
      }
      if (in_place) return ScoreKeys(s_.query, rows_, g_.dim, keys, vectors, scores, ahead_);
      tiles_.ConvertKeys(keys, vectors, g_.dim, s_.keys + columns.begin);
    } else {
      for (const TilePart& part : parts) {
        const KeysInPage keys = {part.page->base + key_offset_, g_.dim, static_cast<size_t>(g_.page_tokens)};
        tiles_.ConvertEachKey(keys, part.token, part.last - part.first, s_.keys + part.first);
      }
    }
    ScoreKeys(s_.query, rows_, g_.dim, s_.converted + columns.begin / kLanes, vectors, scores, ahead_);
  }

  // Keys of latent attention are rows, which are converted together with their values.
  void ScoreLatent(std::span<const TilePart> parts, bool in_place) {
    for (const TilePart& part : parts) {
      const std::byte* rows = RowsOf(part, key_offset_);
      const size_t count = part.last - part.first;
      if (!in_place) {
        float* const to = s_.keys + part.first * g_.dim;
        tiles_.ConvertRows(rows, tiles_.Bytes(g_.dim), count, g_.dim, to);
        rows = reinterpret_cast<const std::byte*>(to);
      }
      DotBlock<F32Row>(s_.query, g_.dim, rows_, rows, F32Row::Bytes(g_.dim), count, g_.dim,
                       s_.scores + part.first, kTile);
    }
  }

  // Adds the tile's weighted values to the sums of all rows.
  void AddInPlace(std::span<const TilePart> parts) {
    const float* keep = s_.keep;
    for (const TilePart& part : parts) {
      AddValuesOfRows(s_.scores + part.first, rows_, part.last - part.first, RowsOf(part, value_offset_),
                      F32Row::Bytes(g_.dim), g_.value_dim, keep, s_.sum, ahead_);
      keep = kKeepAll.data();
    }
  }

  void AddConverted(std::span<const TilePart> parts) {
    const size_t first = parts.front().first, last = parts.back().last;
    const float* values = s_.keys + first * g_.dim + (g_.dim - g_.value_dim);
    size_t stride = g_.dim;
    if (g_.group.latent == 0) {
      for (const TilePart& part : parts) {
        tiles_.ConvertRows(RowsOf(part, value_offset_), tiles_.Bytes(g_.dim), part.last - part.first,
                           g_.value_dim, s_.values + part.first * g_.value_dim);
      }
      values = s_.values + first * g_.value_dim;
      stride = g_.value_dim;
    }
    AddValuesOfRows(s_.scores + first, rows_, last - first, reinterpret_cast<const std::byte*>(values),
                    F32Row::Bytes(stride), g_.value_dim, s_.keep, s_.sum, ahead_);
  }

  // The columns of which row r sees a key; first >= last where it sees none.
  ScoreColumns SeenBy(size_t r, cache::Position tile, const ScoreColumns& columns) const {
    const auto first =
        std::max<cache::Position>(static_cast<cache::Position>(columns.first), s_.oldest[r] - tile);
    const auto last = std::min<cache::Position>(static_cast<cache::Position>(columns.last), s_.end[r] - tile);
    return {.begin = columns.begin,
            .end = columns.end,
            .first = static_cast<size_t>(first),
            .last = static_cast<size_t>(std::max<cache::Position>(last, 0))};
  }

  // Turns the tile's scores into weights and moves the running maxima on.
  void WeighTile(cache::Position tile, const ScoreColumns& columns) {
    alignas(64) float moved[kItemRows] = {};  // old maximum - new one
    alignas(64) float lift[kItemRows] = {};   // the tile's largest score - new maximum
    float largest[kItemRows];
    bool sees[kItemRows];
    for (size_t r = 0; r < rows_; ++r) {
      const ScoreColumns seen = SeenBy(r, tile, columns);
      float* const scores = s_.scores + r * kTile;
      sees[r] = seen.first < seen.last;
      if (!sees[r]) {
        std::fill(scores + columns.begin, scores + columns.end, 0.0F);
        continue;
      }
      if (scoring_.soft_cap > 0) CapScores(scores, columns.begin, columns.end, scoring_.soft_cap);
      if (!scoring_.slopes.empty()) {
        const float slope = scoring_.slopes[HeadIndex(r) % g_.heads] * kLog2OfE;
        const auto distance = static_cast<float>(PositionOf(r) - tile);
        ApplySlope(scores, columns.begin, columns.end, slope, distance);
      }
      largest[r] = LargestScore(scores, seen);
      RowSums& sums = s_.segment[r];
      const float max = sums.weight == 0.0F ? largest[r] : std::max(sums.max, largest[r]);
      moved[r] = sums.weight == 0.0F ? 0.0F : sums.max - max;
      lift[r] = largest[r] - max;
      sums.max = max;
    }
    for (size_t r = 0; r < rows_; r += kLanes) {
      hn::Store(Exp2(hn::Load(F32(), moved + r)), F32(), s_.keep + r);
      if constexpr (kIntegers) hn::Store(Exp2(hn::Load(F32(), lift + r)), F32(), lift + r);
    }
    for (size_t r = 0; r < rows_; ++r) {
      RowSums& sums = s_.segment[r];
      float* const scores = s_.scores + r * kTile;
      if constexpr (kIntegers) {
        if (!sees[r]) {
          tiles_.SetUnseen(r, columns);
          continue;
        }
        const float weight = tiles_.Weigh(r, scores, SeenBy(r, tile, columns), largest[r]);
        tiles_.Lift(r, lift[r]);
        sums.weight = MulAddOne(weight, lift[r], sums.weight * s_.keep[r]);
      } else if (sees[r]) {
        sums.weight = sums.weight * s_.keep[r] + Weigh(scores, columns.begin, columns.end, sums.max);
      }
    }
  }

  void IntegerTile(cache::Position tile, std::span<const TilePart> parts, const ScoreColumns& columns) {
    const Int16Tiles::Place place = {key_offset_, value_offset_, static_cast<size_t>(g_.page_tokens), g_.dim};
    auto* const keys = reinterpret_cast<std::byte*>(s_.keys);
    if constexpr (kInt8) {
      tiles_.Gather(parts, place, columns, rows_, keys, reinterpret_cast<std::byte*>(s_.values));
      tiles_.Score(rows_, columns.begin, s_.scores, ahead_);
      WeighTile(tile, columns);
      tiles_.AddValues(rows_, g_.dim, s_.scores, s_.keep, s_.sum, ahead_);
    } else {
      tiles_.Gather(parts, place, columns, keys);
      tiles_.Score(rows_, g_.dim, columns.begin, s_.scores, ahead_);
      WeighTile(tile, columns);
      tiles_.AddValues(rows_, g_.dim, s_.keep, s_.sum, ahead_);
    }
  }

  const AttentionLayer& at_;
  const Geometry& g_;
  const Scoring scoring_;
  const size_t sequence_, kv_head_, begin_, rows_;
  const std::span<const cache::PageView> pages_;
  const size_t key_offset_, value_offset_;
  MemoryAhead ahead_;
  OnlineSoftmaxState s_;
  Tiles tiles_;
};

template <class Tiles>
void RunAttentionTask(const AttentionWork& work, const AttentionPlan::Item& item,
                      std::span<const AttentionPlan::Piece> pieces) {
  AttentionTask<Tiles> task(work, item);
  if (pieces.empty()) return task.Run(work.q, work.out);
  if (work.pieces_are_done) return task.Finish(work.q, pieces, work.out);
  task.RunPiece(work.q, pieces.front());
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
