// int8 GEMM of a panel with a group of rows, for an instruction set `Isa` (see int8_gemm_avx512.inl and
// int8_gemm_neon.inl for what it offers). Included once per instruction set, inside an unnamed namespace.

// Quants of vector `kVector` (0..7) of a K block, expanded to bytes.
template <class Isa, PanelFormat kFormat, size_t kVector>
QUIRE_INLINE typename Isa::Int KBlockVector(const std::byte* k_block) {
  constexpr int kAt = static_cast<int>(kVector);
  if constexpr (kFormat.bits == 8) {
    return Isa::Load(k_block + kVector * 64);
  } else if constexpr (kFormat.bits >= 4) {
    auto low = Isa::And(Isa::template Shift<-4 * (kAt % 2)>(Isa::Load(k_block + kVector / 2 * 64)), 0x0f);
    if constexpr (kFormat.codebook != weights::Codebook::kNone) {
      low = Isa::template LookUp<kFormat.codebook>(low);
    }
    if constexpr (kFormat.bits == 6) {
      const auto high = Isa::Load(k_block + 256 + kVector / 4 * 64);
      return Isa::Or(low, Isa::And(Isa::template Shift<4 - 2 * (kAt % 4)>(high), 0x30));
    } else if constexpr (kFormat.bits == 5) {
      return Isa::Or(low, Isa::And(Isa::template Shift<4 - kAt>(Isa::Load(k_block + 256)), 0x10));
    } else {
      return low;
    }
  } else {
    auto quants = Isa::And(Isa::template Shift<-2 * (kAt % 4)>(Isa::Load(k_block + kVector / 4 * 64)), 0x03);
    if constexpr (kFormat.bits == 3) {
      quants = Isa::Or(quants, Isa::And(Isa::template Shift<2 - kAt>(Isa::Load(k_block + 128)), 0x04));
    }
    if constexpr (kFormat.codebook != weights::Codebook::kNone) {
      quants = Isa::template LookUp<kFormat.codebook>(quants);
    }
    return quants;
  }
}

// The data of a group of rows for a tile, at (K block, row).
struct TileRows {
  const int8_t* quants;
  const float* scale;
  const int32_t* neg_sum;
  const int32_t* neg_sum_first;
  const int32_t* neg_sum_last;
  const float* total;
  const float* first_total;
  const float* last_total;
  size_t count;  // rows of the group: how far the next K block is

  TileRows(const QuantizedActivations& rows, const QuantizedActivations::Group& group, size_t row) {
    const size_t at = rows.At(group) + row;
    quants = rows.quants() + at * kKBlock;
    scale = rows.scale() + at;
    neg_sum = rows.neg_sum() + at;
    neg_sum_first = rows.neg_sum_first() + at;
    neg_sum_last = rows.neg_sum_last() + at;
    total = rows.total() + at;
    first_total = rows.first_total() + at;
    last_total = rows.last_total() + at;
    count = group.count;
  }
  QUIRE_INLINE void Next(size_t k_blocks = 1) {
    const size_t by = k_blocks * count;
    quants += by * kKBlock;
    scale += by;
    neg_sum += by;
    neg_sum_first += by;
    neg_sum_last += by;
    total += by;
    first_total += by;
    last_total += by;
  }
  QUIRE_INLINE TileRows FromRow(size_t row) const {
    TileRows from = *this;
    from.quants += row * kKBlock;
    from.scale += row;
    from.neg_sum += row;
    from.neg_sum_first += row;
    from.neg_sum_last += row;
    from.total += row;
    from.first_total += row;
    from.last_total += row;
    return from;
  }
  // Sum `kSum` of a K block: of 32 elements, or of the first or last 16.
  template <int kGroup, size_t kSum>
  QUIRE_INLINE const int32_t* NegSum() const {
    return kGroup != 16 ? neg_sum : kSum == 0 ? neg_sum_first : neg_sum_last;
  }
  template <int kGroup, size_t kSum>
  QUIRE_INLINE const float* Total() const {
    return kGroup != 16 ? total : kSum == 0 ? first_total : last_total;
  }
};

// An instruction set that loads vectors of a row's elements and multiplies weights by parts of them.
template <class Isa>
concept HasRowVectors = requires {
  typename Isa::RowVector;
};

// One that also multiplies rows by pairs, with weights as Isa::Zip() makes them of two vectors
// (int8_gemm_i8mm.cc).
template <class Isa>
concept HasPairs = requires {
  Isa::kPairRows;
};

// Whether this number of rows is multiplied by pairs.
template <class Isa, int kRows>
constexpr bool InPairs() {
  if constexpr (HasPairs<Isa>) {
    return kRows % Isa::kPairRows == 0;
  } else {
    return false;
  }
}

// The vectors of a K block as a panel stores them, ready to be multiplied, and two of them zipped.
template <class Isa, PanelFormat kFormat>
struct StoredWeights {
  const std::byte* k_block;

  template <size_t kVector>
  QUIRE_INLINE auto Get() const {
    constexpr bool kBiased = kFormat.zero_point_log2 == 7;  // quants are signed numbers, biased by 128
    return Isa::template PrepareWeight<kBiased>(KBlockVector<Isa, kFormat, kVector>(k_block));
  }
  template <size_t kVector>
  QUIRE_INLINE auto GetZipped() const {
    return Isa::Zip(Get<kVector>(), Get<kVector + 1>());
  }
};

// Vectors [kVector, kEnd) of a K block times kRows rows.
template <class Isa, PanelFormat kFormat, int kRows, size_t kVector, size_t kEnd>
QUIRE_INLINE void DotKBlock(const std::byte* k_block, const TileRows& x, typename Isa::Int* dot) {
  const auto weight = StoredWeights<Isa, kFormat>{k_block}.template Get<kVector>();
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    dot[r] = Isa::Dot(dot[r], weight, x.quants + static_cast<size_t>(r) * kKBlock + kVector * 4);
  }
  if constexpr (kVector + 1 < kEnd) DotKBlock<Isa, kFormat, kRows, kVector + 1, kEnd>(k_block, x, dot);
}

// One of four vectors of a K block, whose elements are the kLane-th four of `rows`, and those that follow it.
template <class Isa, int kRows, size_t kVector, size_t kLane, class Weights>
QUIRE_INLINE void DotLanes(const Weights& weights, const typename Isa::RowVector* rows,
                           typename Isa::Int* dot) {
  const auto weight = weights.template Get<kVector + kLane>();
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) dot[r] = Isa::template DotLane<kLane>(dot[r], weight, rows[r]);
  if constexpr (kLane < 3) DotLanes<Isa, kRows, kVector, kLane + 1>(weights, rows, dot);
}

// As DotKBlock, where the instruction set multiplies by four elements of a vector: 16 elements of each row
// are loaded at once. x: the rows' elements of the K block.
template <class Isa, int kRows, size_t kVector, size_t kEnd, class Weights>
QUIRE_INLINE void DotRowVectors(const Weights& weights, const int8_t* x, typename Isa::Int* dot) {
  static_assert((kEnd - kVector) % 4 == 0);
  typename Isa::RowVector rows[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) rows[r] = Isa::LoadRow(x + static_cast<size_t>(r) * kKBlock + kVector * 4);
  DotLanes<Isa, kRows, kVector, 0>(weights, rows, dot);
  if constexpr (kVector + 4 < kEnd) DotRowVectors<Isa, kRows, kVector + 4, kEnd>(weights, x, dot);
}

// Two of four vectors of a K block, from the kVector-th on, times the kHalf-th 8 elements of pairs of rows.
template <class Isa, int kRows, size_t kVector, size_t kHalf, class Weights>
QUIRE_INLINE void DotPairHalves(const Weights& weights, const typename Isa::PairVector* pairs,
                                typename Isa::Int* dot) {
  const auto weight = weights.template GetZipped<kVector + 2 * kHalf>();
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r += 2) Isa::template DotPair<kHalf>(weight, pairs[r / 2], dot + r, dot + r + 1);
  if constexpr (kHalf == 0) DotPairHalves<Isa, kRows, kVector, 1>(weights, pairs, dot);
}

// Vectors [kVector, kEnd) of a K block times kRows / 2 pairs of rows, of which 16 elements are loaded at
// once.
template <class Isa, int kRows, size_t kVector, size_t kEnd, class Weights>
QUIRE_INLINE void DotPairs(const Weights& weights, const int8_t* x, typename Isa::Int* dot) {
  typename Isa::PairVector pairs[kRows / 2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r += 2)
    pairs[r / 2] = Isa::LoadRowPair(x + static_cast<size_t>(r) * kKBlock + kVector * 4);
  DotPairHalves<Isa, kRows, kVector, 0>(weights, pairs, dot);
  if constexpr (kVector + 4 < kEnd) DotPairs<Isa, kRows, kVector + 4, kEnd>(weights, x, dot);
}

// What an instruction set with vectors of a row's elements adds to `dot`. Sums of pairs of rows stay as
// Isa::StartPair() has them.
template <class Isa, int kRows, size_t kVector, size_t kEnd, class Weights>
QUIRE_INLINE void DotVectors(const Weights& weights, const int8_t* x, typename Isa::Int* dot) {
  if constexpr (InPairs<Isa, kRows>()) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r += 2) Isa::StartPair(dot + r, dot + r + 1);
    DotPairs<Isa, kRows, kVector, kEnd>(weights, x, dot);
  } else {
    DotRowVectors<Isa, kRows, kVector, kEnd>(weights, x, dot);
  }
}

template <class Isa, PanelFormat kFormat, int kRows>
QUIRE_INLINE void StartDots(const int32_t* neg_sums, typename Isa::Int* dot) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kFormat.zero_point_log2 < 0 || (kFormat.zero_point_log2 == 7 && Isa::kSignedWeights)) {
      dot[r] = Isa::ZeroInt();
    } else {
      dot[r] = Isa::template ShiftWords<kFormat.zero_point_log2>(Isa::Set(neg_sums[r]));
    }
  }
}

// The integer sums of vectors [kVector, kEnd) of a K block times kRows rows, less the zero point's.
template <class Isa, PanelFormat kFormat, int kRows, size_t kVector, size_t kEnd>
QUIRE_INLINE void Dots(const std::byte* k_block, const TileRows& x, const int32_t* neg_sums,
                       typename Isa::Int* dot) {
  StartDots<Isa, kFormat, kRows>(neg_sums, dot);
  if constexpr (HasRowVectors<Isa>) {
    DotVectors<Isa, kRows, kVector, kEnd>(StoredWeights<Isa, kFormat>{k_block}, x.quants, dot);
    if constexpr (InPairs<Isa, kRows>()) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r += 2) Isa::FinishPair(dot + r, dot + r + 1);
    }
  } else {
    DotKBlock<Isa, kFormat, kRows, kVector, kEnd>(k_block, x, dot);
  }
}

// The scales of a block's K blocks, for Isa::kLanes outputs from `lane` on; `scales` is at the first of them.
template <class Isa, PanelFormat kFormat>
class BlockScales {
 public:
  using Float = typename Isa::Float;
  static constexpr size_t kSums = kFormat.group == 16 ? 2 : 1;  // per K block and row

  // Float16 scales are two bytes apart where `scales` counts one.
  QUIRE_INLINE BlockScales(const std::byte* scales, size_t lane)
      : at_(scales),
        scale_(kFormat.exponent ? Isa::PowerOfTwo(scales) : Stored(scales + lane)),
        min_offset_(kFormat.min_offset ? Stored(scales + kFormat.min_offset_at() + lane) : Isa::ZeroFloat()) {
  }

  // The scale of sum `sum` of K block `s` of the block.
  QUIRE_INLINE Float Scale(size_t s, size_t sum) const {
    if constexpr (kFormat.group == 0) {
      return scale_;
    } else {
      return Isa::Mul(scale_, SubScale(kFormat.group_scale_at(), s, sum));
    }
  }
  QUIRE_INLINE Float MinOffset(size_t s, size_t sum) const {
    if constexpr (kFormat.group == 0) {
      return min_offset_;
    } else {
      return Isa::NegMul(min_offset_, SubScale(kFormat.group_min_offset_at(), s, sum));
    }
  }

 private:
  QUIRE_INLINE static Float Stored(const std::byte* from) {
    if constexpr (kFormat.scale_log2 == 0) {
      return Isa::Half(from);
    } else {
      return Isa::Mul(Isa::Half(from), Isa::Set(1.0F / static_cast<float>(1 << -kFormat.scale_log2)));
    }
  }
  QUIRE_INLINE Float SubScale(size_t offset, size_t s, size_t sum) const {
    return Isa::LoadSubScale(at_ + offset + (s * kSums + sum) * kPanelOuts);
  }

  const std::byte* at_;
  Float scale_, min_offset_;
};

// The first rows that meet a panel wait for memory rather than for arithmetic: it is fetched this far ahead.
constexpr size_t kPrefetch = 8192;

// y[r] [kLanes] of one panel (its `half`-th lanes) for kRows rows.
template <class Isa, PanelFormat kFormat, int kRows>
QUIRE_INLINE void MicroKernel(const std::byte* panel, size_t half, size_t in, bool first, TileRows x,
                              float* y, size_t stride, size_t outs) {
  using Int = typename Isa::Int;
  using Float = typename Isa::Float;
  constexpr size_t kKBlocks = static_cast<size_t>(kFormat.block) / kKBlock;
  const size_t lane = half * Isa::kLanes;
  const std::byte* scales = panel + lane;
  const std::byte* k_block = panel + PanelScaleBytes(kFormat, static_cast<int64_t>(in)) + lane * 4;
  Float sum[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sum[r] = Isa::ZeroFloat();
  const auto add = [&](const Int* dot, Float weight_scale) QUIRE_INLINE_LAMBDA {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sum[r] = Isa::MulAdd(Isa::ToFloat(dot[r]), Isa::Mul(weight_scale, Isa::Set(x.scale[r])), sum[r]);
    }
  };
  const auto add_min_offset = [&](Float min_offset, const float* totals) QUIRE_INLINE_LAMBDA {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sum[r] = Isa::MulAdd(min_offset, Isa::Set(totals[r]), sum[r]);
  };
  const size_t blocks = in / static_cast<size_t>(kFormat.block);
  for (size_t b = 0; b < blocks; ++b, scales += kFormat.scale_bytes()) {
    const BlockScales<Isa, kFormat> of_block(scales, lane);
    for (size_t s = 0; s < kKBlocks; ++s, k_block += kFormat.k_block_bytes(), x.Next()) {
      if (first) {
        for (size_t line = 0; line < kFormat.k_block_bytes(); line += 64)
          __builtin_prefetch(k_block + kPrefetch + line, 0, 2);
      }
      Int dot[kRows];
      if constexpr (kFormat.group == 16) {
        Dots<Isa, kFormat, kRows, 0, 4>(k_block, x, x.neg_sum_first, dot);
        add(dot, of_block.Scale(s, 0));
        if constexpr (kFormat.min_offset) add_min_offset(of_block.MinOffset(s, 0), x.first_total);
        Dots<Isa, kFormat, kRows, 4, 8>(k_block, x, x.neg_sum_last, dot);
        add(dot, of_block.Scale(s, 1));
        if constexpr (kFormat.min_offset) add_min_offset(of_block.MinOffset(s, 1), x.last_total);
      } else {
        Dots<Isa, kFormat, kRows, 0, 8>(k_block, x, x.neg_sum, dot);
        add(dot, of_block.Scale(s, 0));
        if constexpr (kFormat.min_offset) add_min_offset(of_block.MinOffset(s, 0), x.total);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) Isa::Store(sum[r], y + static_cast<size_t>(r) * stride, outs);
}

// A panel's half with rows [row, ...) of a group, by tiles of kRows and then smaller ones.
template <class Isa, PanelFormat kFormat, int kRows>
void RunMicroKernels(const GemmTask& work, const std::byte* panel, size_t half,
                     const QuantizedActivations::Group& group, size_t row, bool first, float* y,
                     size_t outs) {
  for (; row + kRows <= group.count; row += kRows) {
    MicroKernel<Isa, kFormat, kRows>(panel, half, work.in, first && row == 0,
                                     TileRows(*work.rows, group, row), y + row * work.out, work.out, outs);
  }
  if constexpr (kRows > 1) {
    constexpr int kNext = kRows > 8 ? 8 : kRows > 4 ? 4 : kRows / 2;
    if (row < group.count)
      RunMicroKernels<Isa, kFormat, kNext>(work, panel, half, group, row, first, y, outs);
  }
}

// The outputs of a panel's half: where they begin, how many they are, and their panel.
template <class Isa>
struct PanelHalf {
  const std::byte* panel;
  size_t half, out, outs;

  PanelHalf(const GemmTask& work, size_t p, size_t h, size_t panel_bytes)
      : panel(work.panels + (p - work.first) * panel_bytes), half(h), out(p * kPanelOuts + h * Isa::kLanes) {
    const size_t left = out < work.out ? work.out - out : 0;
    outs = left < Isa::kLanes ? left : Isa::kLanes;
  }
};

// A panel's half with a few groups of rows: its weights are unpacked for every tile.
template <class Isa, PanelFormat kFormat>
void MultiplyFewRows(const GemmTask& work, const PanelHalf<Isa>& half,
                     std::span<const QuantizedActivations::Group> groups) {
  for (const QuantizedActivations::Group& group : groups) {
    RunMicroKernels<Isa, kFormat, Isa::kRowsMax>(work, half.panel, half.half, group, 0,
                                                 &group == groups.data(),
                                                 work.y + group.row * work.out + half.out, half.outs);
  }
}

#include "runner/kernels/int8_gemm_twice.inl"

// Activations worked on at a time, so that they stay in the second-level cache while panels pass.
constexpr size_t kActivationBytes = 393'216;

#include "runner/kernels/int8_gemm_chunks.inl"

// Whether these rows repay the unpacking of chunks. Isa::kManyRows is 0 where no number of rows does.
template <class Isa, PanelFormat kFormat>
bool IsMany(std::span<const QuantizedActivations::Group> groups) {
  constexpr size_t kMany = Isa::template kManyRows<kFormat>;
  return kMany != 0 && groups.back().row + groups.back().count - groups.front().row >= kMany;
}

// Whether few rows are another function's: AMX leaves them to AVX-512, whose code is not compiled again.
template <class Isa>
inline constexpr bool kLeavesFewRows = requires { Isa::kLeavesFewRows; };

// The first type with panels of this format.
template <PanelFormat kFormat>
consteval weights::DataType TypeOf() {
#define QUIRE_TYPE_OF_FORMAT(name, ...) \
  if (PanelFormatOf(weights::DataType::k##name) == kFormat) return weights::DataType::k##name;
  QUIRE_DATA_TYPES(QUIRE_TYPE_OF_FORMAT)
#undef QUIRE_TYPE_OF_FORMAT
  return {};
}

template <class Isa, PanelFormat kFormat>
void Gemm(const GemmTask& work) {
  const size_t panel_bytes = PanelBytes(kFormat, static_cast<int64_t>(work.in));
  const auto all = work.rows->groups().subspan(work.first_group, work.last_group - work.first_group);
  for (size_t g = 0; g < all.size();) {
    const size_t left = all.size() - g;
    auto groups = all.subspan(g, left < Isa::kChunkGroups ? left : Isa::kChunkGroups);
    const bool many = IsMany<Isa, kFormat>(groups);
    if constexpr (kLeavesFewRows<Isa>) {
      if (!many) {
        GemmTask few = work;
        few.first_group += g;
        few.last_group = few.first_group + groups.size();
        Int8GemmAvx512(TypeOf<kFormat>())(few);
        g += groups.size();
        continue;
      }
    }
    if (!many) {
      const size_t group_bytes = groups.front().count * work.in;
      const size_t cached = group_bytes < kActivationBytes ? kActivationBytes / group_bytes : 1;
      groups = all.subspan(g, left < cached ? left : cached);
    }
    g += groups.size();
    const bool together = !many && AreTogether<Isa>(groups);
    for (size_t p = work.begin; p < work.end; ++p) {
      if constexpr (!kLeavesFewRows<Isa> && requires { Isa::kTogetherRows; }) {
        if (together) {
          MultiplyFewRows<Twice<Isa>, kFormat>(work, {work, p, 0, panel_bytes}, groups);
          continue;
        }
      }
      for (size_t h = 0; h * Isa::kLanes < kPanelOuts; ++h) {
        const PanelHalf<Isa> half(work, p, h, panel_bytes);
        if (half.outs == 0) break;
        if constexpr (Isa::template kManyRows<kFormat> != 0) {
          if (many) {
            MultiplyManyRows<Isa, kFormat>(work, half, groups);
            continue;
          }
        }
        if constexpr (!kLeavesFewRows<Isa>) MultiplyFewRows<Isa, kFormat>(work, half, groups);
      }
    }
  }
}

template <class Isa, PanelFormat kFormat>
constexpr Int8Gemm* GemmOfFormat() {
  if constexpr (kFormat.bits != 0) {
    return Gemm<Isa, kFormat>;
  } else {
    return nullptr;
  }
}

template <class Isa>
Int8Gemm* Int8GemmOf(weights::DataType type) {
#define QUIRE_INT8_GEMM(name, ...) GemmOfFormat<Isa, PanelFormatOf(weights::DataType::k##name)>(),
  static constexpr Int8Gemm* kGemms[] = {QUIRE_DATA_TYPES(QUIRE_INT8_GEMM)};
#undef QUIRE_INT8_GEMM
  return kGemms[static_cast<size_t>(type)];
}
