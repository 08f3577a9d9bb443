// Register tiles of attention: scores of query rows with keys, weighted sums of values, and conversions of
// keys and values to float32. Compiled once per SIMD target.
//
// A score is summed in the order of the head's numbers, a sum of values in the order of keys; how many rows
// or vectors a tile holds, and whether keys and values were converted before, does not enter.

#if defined(QUIRE_RUNNER_KERNELS_ATTENTION_TILES_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_RUNNER_KERNELS_ATTENTION_TILES_INL_
#undef QUIRE_RUNNER_KERNELS_ATTENTION_TILES_INL_
#else
#define QUIRE_RUNNER_KERNELS_ATTENTION_TILES_INL_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "runner/kernels/rows.inl"

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Keys per step of the running softmax, at most. Tiles begin at multiples of it, whatever pages they lie in.
constexpr size_t kTile = 64;
constexpr size_t kTileVectors = kTile / kLanes;

// Rows and vectors of a tile of sums; beside them are a row of vectors and a broadcast number.
constexpr size_t kScoreRows = kManyRegisters ? 12 : 6, kScoreVectors = 2;  // 27 of 32 registers, 15 of 16
constexpr size_t kValueRows = 6, kValueVectors = kManyRegisters ? 4 : 2;   // 29, 15
// From this number of rows on, a tile's keys and values are converted to float32 before they are used.
constexpr size_t kConvertRows = 7;

// Keys [first, last) of a tile, which lie in one page; `token` is the first one's place there.
struct TilePart {
  const cache::PageView* page;
  size_t first, last;
  size_t token;
};

// Memory that the next tile will read. It is asked for in portions, so that requests do not hold up the loads
// of this tile.
class MemoryAhead {
 public:
  void Clear() { count_ = 0, bytes_ = 0; }
  // Further ranges than there is room for are not asked for.
  void Add(const std::byte* from, size_t bytes) {
    if (count_ == std::size(ranges_)) return;
    ranges_[count_++] = {from, from + bytes};
    bytes_ += bytes;
  }
  // REQUIRES: portions > 0.
  void Divide(size_t portions) { lines_ = (bytes_ / 64 + portions - 1) / portions; }
  void Next() {
    for (size_t left = lines_; left > 0 && count_ > 0; --left) {
      Range& range = ranges_[count_ - 1];
      __builtin_prefetch(range.at, 0, 2);
      range.at += 64;
      if (range.at >= range.end) --count_;
    }
  }

 private:
  struct Range {
    const std::byte *at, *end;
  };
  Range ranges_[8];
  size_t count_ = 0, bytes_ = 0, lines_ = 0;
};

// Elements [c, c + kLanes) of a row. REQUIRES: c is a multiple of kLanes.
template <class Row>
HWY_INLINE VF32 LoadFrom(const Row& row, size_t c) {
  return row.At(c / Row::kBlock).Load(c % Row::kBlock);
}

// For kRows rows and kWide vectors of a head from element c on: sum = sum * keep + the values of `keys` keys,
// weighted. Values are `stride` bytes apart.
template <size_t kRows, size_t kWide>
HWY_INLINE void AddValuesTile(const float* weights, size_t keys, const std::byte* values, size_t stride,
                              size_t dim, size_t c, const float* keep, float* sum) {
  const F32 d;
  VF32 sums[kRows][kWide];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) {
      sums[r][w] = hn::Mul(hn::LoadU(d, sum + r * dim + c + w * kLanes), hn::Set(d, keep[r]));
    }
  }
  for (size_t key = 0; key < keys; ++key) {
    const F32Row row{values + key * stride};
    VF32 value[kWide];
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) value[w] = LoadFrom(row, c + w * kLanes);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const VF32 weight = hn::Set(d, weights[r * kTile + key]);
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) sums[r][w] = hn::MulAdd(weight, value[w], sums[r][w]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) hn::StoreU(sums[r][w], d, sum + r * dim + c + w * kLanes);
  }
}

// The same for whole heads. Keys that a row does not see have the weight 0, which changes nothing.
template <size_t kRows>
HWY_INLINE void AddValues(const float* weights, size_t keys, const std::byte* values, size_t stride,
                          size_t dim, const float* keep, float* sum) {
  constexpr size_t kWide = kValueVectors;
  size_t c = 0;
  for (; c + kWide * kLanes <= dim; c += kWide * kLanes) {
    AddValuesTile<kRows, kWide>(weights, keys, values, stride, dim, c, keep, sum);
  }
  if (kWide > 2 && c + 2 * kLanes <= dim) {
    AddValuesTile<kRows, 2>(weights, keys, values, stride, dim, c, keep, sum);
    c += 2 * kLanes;
  }
  for (; c + kLanes <= dim; c += kLanes) {
    AddValuesTile<kRows, 1>(weights, keys, values, stride, dim, c, keep, sum);
  }
  for (; c < dim; ++c) {
    for (size_t r = 0; r < kRows; ++r) {
      float one = sum[r * dim + c] * keep[r];
      for (size_t key = 0; key < keys; ++key) {
        one = MulAddOne(weights[r * kTile + key], F32Row{values + key * stride}.ToFloat32(c), one);
      }
      sum[r * dim + c] = one;
    }
  }
}

// The same for `rows` rows; weights are kTile apart. Some memory of later use is asked for between register
// tiles.
HWY_INLINE void AddValuesOfRows(const float* weights, size_t rows, size_t keys, const std::byte* values,
                                size_t stride, size_t dim, const float* keep, float* sum,
                                MemoryAhead& ahead) {
  const auto add = [&]<size_t kSome>(size_t r) HWY_ATTR {
    AddValues<kSome>(weights + r * kTile, keys, values, stride, dim, keep + r, sum + r * dim);
    ahead.Next();
  };
  size_t r = 0;
  for (; r + kValueRows <= rows; r += kValueRows) add.template operator()<kValueRows>(r);
  for (; r + 4 <= rows; r += 4) add.template operator()<4>(r);
  for (; r + 2 <= rows; r += 2) add.template operator()<2>(r);
  for (; r < rows; ++r) add.template operator()<1>(r);
}

// A vector of keys, as many as lanes, as they lie in their page, transposed: Load(c) is number c of each if
// they are float32.
struct KeyColumn {
  const std::byte* at;
  size_t stride;  // bytes
  HWY_INLINE VF32 Load(size_t c) const { return LoadAt(F32(), at + c * stride); }
};

// The keys of a head in a page of `stride` tokens.
struct KeysInPage {
  const std::byte* head;
  size_t dim, stride;
};

// Converts vectors of keys to float32, to [dim, kTile].
template <class Row>
void ConvertKeysToFloat32(const KeyColumn* keys, size_t vectors, size_t dim, float* to) {
  for (size_t c = 0; c < dim; ++c, to += kTile) {
    for (size_t w = 0; w < vectors; ++w) {
      hn::Store(typename Row::Block{keys[w].at + c * keys[w].stride}.Load(0), F32(), to + w * kLanes);
    }
  }
}

// The same for `count` keys of a page from `token` on, whose vectors would leave the page.
template <class Row>
void ConvertEachKeyToFloat32(const KeysInPage& keys, size_t token, size_t count, float* to) {
  const Row row{keys.head};
  for (size_t c = 0; c < keys.dim; ++c, to += kTile) {
    for (size_t i = 0; i < count; ++i) to[i] = row.ToFloat32(c * keys.stride + token + i);
  }
}

// Converts `rows` rows of `size` numbers, `stride` bytes apart, to float32, one after the other.
template <class Row>
void ConvertRowsToFloat32(const std::byte* from, size_t stride, size_t rows, size_t size, float* to) {
  for (size_t i = 0; i < rows; ++i, to += size) {
    const Row row{from + i * stride};
    size_t c = 0;
    for (; c + kLanes <= size; c += kLanes) hn::StoreU(LoadFrom(row, c), F32(), to + c);
    for (; c < size; ++c) to[c] = row.ToFloat32(c);
  }
}

// How keys and values of a page are read that are multiplied as float32 numbers. What is not float32 is
// converted, a tile at a time, so that nothing else is compiled for its type.
class FloatTiles {
 public:
  explicit FloatTiles(cache::ElementType type) : loader_(LoaderFor(type)) {}
  bool are_float32() const { return loader_.bytes == F32Row::Bytes; }
  size_t Bytes(size_t elements) const { return loader_.bytes(elements); }
  void ConvertKeys(const KeyColumn* keys, size_t vectors, size_t dim, float* to) const {
    loader_.keys(keys, vectors, dim, to);
  }
  void ConvertEachKey(const KeysInPage& keys, size_t token, size_t count, float* to) const {
    loader_.each_key(keys, token, count, to);
  }
  void ConvertRows(const std::byte* from, size_t stride, size_t rows, size_t size, float* to) const {
    loader_.rows(from, stride, rows, size, to);
  }

 private:
  struct Loader {
    size_t (*bytes)(size_t elements);
    void (*rows)(const std::byte* from, size_t stride, size_t rows, size_t size, float* to);
    // Null for q8_0, which is here for latent attention: its keys are rows.
    void (*keys)(const KeyColumn* keys, size_t vectors, size_t dim, float* to);
    void (*each_key)(const KeysInPage& keys, size_t token, size_t count, float* to);
  };
  template <class Row>
  static Loader LoaderOf() {
    return {Row::Bytes, ConvertRowsToFloat32<Row>, ConvertKeysToFloat32<Row>, ConvertEachKeyToFloat32<Row>};
  }
  static Loader LoaderFor(cache::ElementType type) {
    switch (type) {
      case cache::ElementType::kF16:
        return LoaderOf<F16Row>();
      case cache::ElementType::kBF16:
        return LoaderOf<BF16Row>();
      case cache::ElementType::kQ8_0:
        return {Q8Row::Bytes, ConvertRowsToFloat32<Q8Row>, nullptr, nullptr};
      default:
        return LoaderOf<F32Row>();
    }
  }

  Loader loader_;
};

// scores [kRows, kTile] of kWide vectors of keys = q [kRows, dim] times the keys. An element is summed in the
// order of `dim`.
template <size_t kRows, size_t kWide, class Column>
HWY_INLINE void ScoreTile(const float* q, size_t dim, const Column* keys, float* scores) {
  const F32 d;
  VF32 sums[kRows][kWide];
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) sums[r][w] = hn::Zero(d);
  }
  for (size_t c = 0; c < dim; ++c) {
    VF32 key[kWide];
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) key[w] = keys[w].Load(c);
#pragma GCC unroll 12
    for (size_t r = 0; r < kRows; ++r) {
      const VF32 query = hn::Set(d, q[r * dim + c]);
#pragma GCC unroll 4
      for (size_t w = 0; w < kWide; ++w) sums[r][w] = hn::MulAdd(query, key[w], sums[r][w]);
    }
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t w = 0; w < kWide; ++w) hn::Store(sums[r][w], d, scores + r * kTile + w * kLanes);
  }
}

// The same for `vectors` vectors of keys, kWide at a time.
template <size_t kRows, size_t kWide, class Column>
HWY_INLINE void ScoreRows(const float* q, size_t dim, const Column* keys, size_t vectors, float* scores) {
  size_t w = 0;
  for (; w + kWide <= vectors; w += kWide) {
    ScoreTile<kRows, kWide>(q, dim, keys + w, scores + w * kLanes);
  }
  for (; w < vectors; ++w) ScoreTile<kRows, 1>(q, dim, keys + w, scores + w * kLanes);
}

// The same for all rows.
template <class Column>
HWY_INLINE void ScoreKeys(const float* q, size_t rows, size_t dim, const Column* keys, size_t vectors,
                          float* scores, MemoryAhead& ahead) {
  const auto score = [&]<size_t kSome, size_t kWide>(size_t r) HWY_ATTR {
    ScoreRows<kSome, kWide>(q + r * dim, dim, keys, vectors, scores + r * kTile);
    ahead.Next();
  };
  size_t r = 0;
  for (; r + kScoreRows <= rows; r += kScoreRows) score.template operator()<kScoreRows, kScoreVectors>(r);
  for (; r + 4 <= rows; r += 4) score.template operator()<4, kScoreVectors>(r);
  for (; r + 2 <= rows; r += 2) score.template operator()<2, 4>(r);
  for (; r < rows; ++r) score.template operator()<1, 4>(r);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
