#include "runner/kernels/key_value.h"

#include <algorithm>
#include <cassert>
#include <cmath>

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/key_value.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/int16_rows.inl"
#include "runner/kernels/rows.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

template <class Half, class Convert>
HWY_INLINE void ConvertRow(const float* from, size_t count, std::byte* to, Convert convert) {
  const hn::Rebind<Half, F32> half;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(convert(hn::LoadU(F32(), from + i)), half, reinterpret_cast<Half*>(to) + i);
  }
  if (i < count) {
    alignas(64) Half rest[kLanes];
    hn::Store(convert(LoadFirst(from + i, count - i)), half, rest);
    std::memcpy(to + i * sizeof(Half), rest, (count - i) * sizeof(Half));
  }
}

// v rounded to nearest even with kBits fewer bits of fraction, for conversions that would cut them off.
template <int kBits>
HWY_INLINE VF32 RoundFraction(VF32 v) {
  const hn::RebindToUnsigned<F32> u;
  const auto bits = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<kBits>(bits), hn::Set(u, 1));
  return hn::BitCast(F32(), hn::Add(bits, hn::Add(odd, hn::Set(u, (1U << (kBits - 1)) - 1))));
}

constexpr float kLargestHalf = 65504;

struct ToHalf {
  HWY_INLINE hn::Vec<hn::Rebind<hwy::float16_t, F32>> operator()(VF32 v) const {
    const F32 d;
    v = hn::Clamp(v, hn::Set(d, -kLargestHalf), hn::Set(d, kLargestHalf));
#if HWY_TARGET >= HWY_SSE4 && HWY_TARGET != HWY_NEON  // before F16C, the conversion truncates
    v = RoundFraction<13>(v);
#endif
    return hn::DemoteTo(hn::Rebind<hwy::float16_t, F32>(), v);
  }
};

// Blocks of a float16 scale and int8 quants; the quants are those of the scale as it is stored.
HWY_INLINE void QuantizeToQ8(const float* from, size_t count, std::byte* to) {
  for (size_t block = 0; block < count / Q8Row::kBlock; ++block, from += Q8Row::kBlock) {
    float largest = 0;
    for (size_t i = 0; i < Q8Row::kBlock; ++i) largest = std::max(largest, std::abs(from[i]));
    std::byte* const at = to + block * Q8Row::kBlockBytes;
    const float scale = std::min(largest / 127, kLargestHalf);
    ConvertRow<hwy::float16_t>(&scale, 1, at, ToHalf());
    const float stored = F16Row{at}.ToFloat32(0);
    for (size_t i = 0; i < Q8Row::kBlock; ++i) {
      const float quant = stored > 0 ? std::clamp(std::nearbyint(from[i] / stored), -127.0F, 127.0F) : 0.0F;
      at[2 + i] = static_cast<std::byte>(static_cast<int8_t>(quant));
    }
  }
}

// One vector: its scale, then its numbers.
HWY_INLINE void QuantizeVectorToInt16(const float* from, size_t count, std::byte* to) {
  int16_t quants[kMaxHeadDim];
  const float scale = QuantizeToInt16(from, count, quants);
  std::memcpy(to, &scale, sizeof(scale));
  std::memcpy(to + sizeof(scale), quants, count * sizeof(int16_t));
}

// Consecutive elements into their place in a page.
void FromFloat32(cache::ElementType type, const float* from, size_t count, std::byte* to) {
  switch (type) {
    case cache::ElementType::kF32:
      std::memcpy(to, from, count * sizeof(float));
      return;
    case cache::ElementType::kF16:
      ConvertRow<hwy::float16_t>(from, count, to, ToHalf());
      return;
    case cache::ElementType::kBF16:
      ConvertRow<hwy::bfloat16_t>(from, count, to, [](VF32 v) HWY_ATTR {
        return hn::DemoteTo(hn::Rebind<hwy::bfloat16_t, F32>(), RoundFraction<16>(v));
      });
      return;
    case cache::ElementType::kQ8_0:
      return QuantizeToQ8(from, count, to);
    case cache::ElementType::kI16:
      return QuantizeVectorToInt16(from, count, to);
  }
}

template <class Row>
void ConvertAllToFloat32(const std::byte* from, size_t count, float* to) {
  const Row row{from};
  for (size_t i = 0; i < count; ++i) to[i] = row.ToFloat32(i);
}

void ConvertInt16ToFloat32(const std::byte* from, size_t count, float* to) {
  const float scale = F32Row{from}.ToFloat32(0);
  for (size_t i = 0; i < count; ++i) {
    int16_t quant;
    std::memcpy(&quant, from + sizeof(scale) + i * sizeof(quant), sizeof(quant));
    to[i] = scale * static_cast<float>(quant);
  }
}

void ToFloat32(cache::ElementType type, const std::byte* from, size_t count, float* to) {
  switch (type) {
    case cache::ElementType::kF32:
      return ConvertAllToFloat32<F32Row>(from, count, to);
    case cache::ElementType::kF16:
      return ConvertAllToFloat32<F16Row>(from, count, to);
    case cache::ElementType::kBF16:
      return ConvertAllToFloat32<BF16Row>(from, count, to);
    case cache::ElementType::kQ8_0:
      return ConvertAllToFloat32<Q8Row>(from, count, to);
    case cache::ElementType::kI16:
      return ConvertInt16ToFloat32(from, count, to);
  }
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(FromFloat32);
HWY_EXPORT(ToFloat32);

// A token's number c of a head, row by row, and its offset in the transposed K layout.
template <class Move>
void ForEachKeyNumber(const cache::Layout& layout, size_t group, int32_t row, const Move& move) {
  const cache::AttentionGroup& g = layout.groups[group];
  const auto place = static_cast<size_t>(row);
  size_t plane_index = 0;
  const size_t blocks =
      g.element == cache::ElementType::kQ8_0 ? static_cast<size_t>(g.head_dim / kQ8Block) : 0;
  cache::ForEachKeyPlane(layout, group, [&](size_t plane, size_t bytes) {
    size_t at = plane_index * bytes;
    if (blocks != 0) {
      constexpr size_t kBlock = kQ8Block, kBlockBytes = kQ8Block + 2;
      const size_t quant = plane_index - blocks;
      at = plane_index < blocks ? plane_index * kBlockBytes
                                : quant / kBlock * kBlockBytes + 2 + quant % kBlock;
    }
    ++plane_index;
    move(at, plane + place * bytes, bytes);
  });
}

// Copies a number of 1, 2 or 4 bytes.
void CopyNumber(const std::byte* from, size_t bytes, std::byte* to) {
  if (bytes == 2) {
    std::memcpy(to, from, 2);
  } else if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else {
    *to = *from;
  }
}

// The pieces of a stored value: move(offset in the vector, offset in the head's values, bytes).
template <class Move>
void ForEachValuePiece(const cache::ValuePlace& place, const Move& move) {
  if (place.scale_bytes > 0) move(0, place.scale, place.scale_bytes);
  for (size_t i = 0; i < place.count; ++i) {
    move(place.scale_bytes + i * place.bytes, place.first + i * place.stride, place.bytes);
  }
}

// K and V of all heads of one row.
void StoreRow(const AttentionLayer& at, size_t sequence, size_t row, const float* k, const float* v) {
  const cache::AttentionGroup& g = at.layout->groups[at.group];
  const cache::Position page_tokens = at.layout->page_tokens;
  const auto dim = static_cast<size_t>(g.head_dim);
  const auto pages = at.step->Pages(sequence, at.group);
  const cache::Position p = at.step->offset(sequence) + static_cast<cache::Position>(row);
  const cache::PageView& page = pages[static_cast<size_t>(p / page_tokens - pages[0].first / page_tokens)];
  assert(p < page.first + page.tokens);
  const auto place = static_cast<int32_t>(p % page_tokens);
  for (int32_t head = 0; head < g.kv_heads; ++head) {
    const size_t from = static_cast<size_t>(head) * dim;
    WriteKeys(*at.layout, at.group, {k + from, dim},
              page.base + cache::KeyOffset(*at.layout, at.group, at.layer, head), place, 1);
    if (g.latent > 0) continue;
    WriteValue(*at.layout, at.group, {v + from, dim},
               page.base + cache::ValueOffset(*at.layout, at.group, at.layer, head), place);
  }
}

}  // namespace

void ConvertFromFloat32(cache::ElementType type, std::span<const float> from, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(FromFloat32)(type, from.data(), from.size(), to);
}

void ConvertToFloat32(cache::ElementType type, const std::byte* from, std::span<float> to) {
  HWY_DYNAMIC_DISPATCH(ToFloat32)(type, from, to.size(), to.data());
}

void WriteKeys(const cache::Layout& layout, size_t group, std::span<const float> from, std::byte* head,
               int32_t row, int32_t tokens) {
  const cache::AttentionGroup& g = layout.groups[group];
  const auto dim = static_cast<size_t>(g.head_dim);
  if (g.latent > 0) {
    const size_t count = static_cast<size_t>(tokens) * dim;
    const size_t bytes = cache::RowBytes(layout, group);
    return ConvertFromFloat32(g.element, from.first(count), head + bytes * static_cast<size_t>(row));
  }
  assert(g.head_dim <= kMaxHeadDim);
  std::byte stored[kMaxHeadDim * sizeof(float)];
  for (int32_t t = 0; t < tokens; ++t) {
    ConvertFromFloat32(g.element, from.subspan(static_cast<size_t>(t) * dim, dim), stored);
    ForEachKeyNumber(layout, group, row + t, [&](size_t at, size_t place, size_t bytes) {
      CopyNumber(stored + at, bytes, head + place);
    });
  }
}

void WriteValue(const cache::Layout& layout, size_t group, std::span<const float> from, std::byte* head,
                int32_t row) {
  const cache::ElementType type = layout.groups[group].element;
  if (type != cache::ElementType::kI16) {
    return ConvertFromFloat32(type, from, head + cache::RowBytes(layout, group) * static_cast<size_t>(row));
  }
  std::byte stored[kMaxHeadDim * sizeof(float)];
  ConvertFromFloat32(type, from, stored);
  ForEachValuePiece(cache::PlaceOfValue(layout, group, row), [&](size_t at, size_t place, size_t bytes) {
    CopyNumber(stored + at, bytes, head + place);
  });
}

void ReadValue(const cache::Layout& layout, size_t group, const std::byte* head, int32_t row,
               std::span<float> to) {
  const cache::ElementType type = layout.groups[group].element;
  if (type != cache::ElementType::kI16) {
    return ConvertToFloat32(type, head + cache::RowBytes(layout, group) * static_cast<size_t>(row), to);
  }
  std::byte stored[kMaxHeadDim * sizeof(float)];
  ForEachValuePiece(cache::PlaceOfValue(layout, group, row), [&](size_t at, size_t place, size_t bytes) {
    CopyNumber(head + place, bytes, stored + at);
  });
  ConvertToFloat32(type, stored, to);
}

void ReadKeys(const cache::Layout& layout, size_t group, const std::byte* head, int32_t row, int32_t tokens,
              std::span<float> to) {
  const cache::AttentionGroup& g = layout.groups[group];
  const auto dim = static_cast<size_t>(g.head_dim);
  if (g.latent > 0) {
    const size_t bytes = cache::RowBytes(layout, group);
    return ConvertToFloat32(g.element, head + bytes * static_cast<size_t>(row),
                            to.first(static_cast<size_t>(tokens) * dim));
  }
  assert(g.head_dim <= kMaxHeadDim);
  std::byte stored[kMaxHeadDim * sizeof(float)];
  for (int32_t t = 0; t < tokens; ++t) {
    ForEachKeyNumber(layout, group, row + t, [&](size_t at, size_t place, size_t bytes) {
      CopyNumber(head + place, bytes, stored + at);
    });
    ConvertToFloat32(g.element, stored, to.subspan(static_cast<size_t>(t) * dim, dim));
  }
}

void StoreKeyValue(ThreadPool& pool, const AttentionLayer& at, std::span<const float> k,
                   std::span<const float> v) {
  const cache::AttentionGroup& g = at.layout->groups[at.group];
  const auto row_size = static_cast<size_t>(g.kv_heads) * static_cast<size_t>(g.head_dim);
  assert((g.latent > 0 ? v.empty() : k.size() == v.size()) &&
         k.size() == static_cast<size_t>(at.row_begin.back()) * row_size);
  constexpr size_t kRowsPerTask = 64;
  const size_t sequences = at.row_begin.size() - 1;
  const auto store = [&](size_t sequence, size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const size_t from = (static_cast<size_t>(at.row_begin[sequence]) + row) * row_size;
      StoreRow(at, sequence, row, k.data() + from, v.data() + from);
    }
  };
  for (size_t sequence = 0; sequence < sequences; ++sequence) {
    const auto rows = static_cast<size_t>(at.row_begin[sequence + 1] - at.row_begin[sequence]);
    pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
      store(sequence, task * kRowsPerTask, std::min(rows, (task + 1) * kRowsPerTask));
    });
  }
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
