// int8 GEMM of a panel with many rows: the weights of a chunk of K blocks are unpacked once, with their
// scales, and then multiplied with many rows. Each output has the additions of MicroKernel() in the same
// order. Included by int8_gemm.inl.

// An instruction set whose signed bytes are multiplied as magnitudes and signs.
template <class Isa>
concept SplitsSigns = Isa::kSignedWeights && requires(typename Isa::Int* vectors) {
  Isa::template SplitSigns<8>(vectors, vectors);
};

// Isa::kChunk elements, so that their unpacked weights stay in the first-level cache. They are unpacked again
// for every Isa::kChunkGroups groups of rows.
template <class Isa, PanelFormat kFormat>
struct WeightChunk {
  using Int = typename Isa::Int;
  using Float = typename Isa::Float;
  static constexpr size_t kKBlocks = Isa::kChunk / kKBlock;
  static constexpr size_t kSums = BlockScales<Isa, kFormat>::kSums;
  static constexpr bool kSigned = SplitsSigns<Isa> && kFormat.zero_point_log2 == 7;
  // Forms of a scale: for the sums of one row, and as Isa::ForPair() makes them for the two vectors of sums
  // of a pair.
  static constexpr size_t kScaleForms = HasPairs<Isa> ? 3 : 1;

  struct KBlock {
    Int weight[8];                   // kSigned: magnitudes
    Int sign[kSigned ? 8 : 1];       // kSigned: bytes, 0 or -1
    Int start[kSigned ? kSums : 1];  // kSigned: of each sum, see Isa::SplitSigns()
    Float scale[kSums][kScaleForms];
    Float min_offset[kSums][kScaleForms];
  };
  KBlock k_block[kKBlocks];
  size_t count = 0;
};

template <class Isa, PanelFormat kFormat, size_t kVector = 0>
QUIRE_INLINE void UnpackWeights(const std::byte* from, typename Isa::Int* to) {
  if constexpr (HasPairs<Isa>) {
    Isa::StoreZipped(StoredWeights<Isa, kFormat>{from}.template GetZipped<kVector>(), to + kVector);
    if constexpr (kVector < 6) UnpackWeights<Isa, kFormat, kVector + 2>(from, to);
  } else {
    if constexpr (HasRowVectors<Isa>) {
      to[kVector] = StoredWeights<Isa, kFormat>{from}.template Get<kVector>();
    } else {
      to[kVector] = KBlockVector<Isa, kFormat, kVector>(from);
    }
    if constexpr (kVector < 7) UnpackWeights<Isa, kFormat, kVector + 1>(from, to);
  }
}

// The vectors of a K block as UnpackWeights() left them.
template <class Isa>
struct UnpackedWeights {
  const typename Isa::Int* vectors;

  template <size_t kVector>
  QUIRE_INLINE auto Get() const {
    if constexpr (HasPairs<Isa>) {
      return Isa::template Unzip<kVector % 2 != 0>(vectors + kVector / 2 * 2);
    } else {
      return vectors[kVector];
    }
  }
  template <size_t kVector>
  QUIRE_INLINE auto GetZipped() const {
    return Isa::LoadZipped(vectors + kVector);
  }
};

// The forms of a scale: WeightChunk::kScaleForms.
template <class Isa, size_t kScaleForms>
QUIRE_INLINE void StoreForms(typename Isa::Float scale, typename Isa::Float (&to)[kScaleForms]) {
  to[0] = scale;
  if constexpr (kScaleForms > 1) Isa::ForPair(scale, &to[1], &to[2]);
}

// K blocks [first, first + count) of a panel's half; `first` begins a block.
template <class Isa, PanelFormat kFormat>
void UnpackChunk(const PanelHalf<Isa>& half, size_t in, size_t first, size_t count,
                 WeightChunk<Isa, kFormat>* to) {
  constexpr size_t kPerBlock = static_cast<size_t>(kFormat.block) / kKBlock;
  const size_t lane = half.half * Isa::kLanes;
  const std::byte* scales = half.panel + first / kPerBlock * kFormat.scale_bytes() + lane;
  const std::byte* k_block = half.panel + PanelScaleBytes(kFormat, static_cast<int64_t>(in)) + lane * 4 +
                             first * kFormat.k_block_bytes();
  to->count = count;
  for (size_t b = 0; b < count; b += kPerBlock, scales += kFormat.scale_bytes()) {
    const BlockScales<Isa, kFormat> of_block(scales, lane);
    for (size_t s = 0; s < kPerBlock; ++s, k_block += kFormat.k_block_bytes()) {
      for (size_t line = 0; line < kFormat.k_block_bytes(); line += 64)
        __builtin_prefetch(k_block + kPrefetch + line, 0, 2);
      auto& out = to->k_block[b + s];
      UnpackWeights<Isa, kFormat>(k_block, out.weight);
      constexpr size_t kSums = WeightChunk<Isa, kFormat>::kSums, kVectors = 8 / kSums;
      for (size_t sum = 0; sum < kSums; ++sum) {
        if constexpr (WeightChunk<Isa, kFormat>::kSigned) {
          const size_t at = sum * kVectors;
          out.start[sum] = Isa::template SplitSigns<kVectors>(out.weight + at, out.sign + at);
        }
        StoreForms<Isa>(of_block.Scale(s, sum), out.scale[sum]);
        if constexpr (kFormat.min_offset) StoreForms<Isa>(of_block.MinOffset(s, sum), out.min_offset[sum]);
      }
    }
  }
}

// Sum `kSum` of a K block's integer products with kRows rows. Those of pairs of rows stay as Isa::StartPair()
// has them.
template <class Isa, PanelFormat kFormat, int kRows, size_t kSum>
QUIRE_INLINE void DotUnpacked(const typename WeightChunk<Isa, kFormat>::KBlock& weights,
                              const int32_t* neg_sum, const int8_t* x, typename Isa::Int* dot) {
  constexpr size_t kVectors = 8 / WeightChunk<Isa, kFormat>::kSums, kFirst = kSum * kVectors;
  if constexpr (WeightChunk<Isa, kFormat>::kSigned) {
    Isa::template DotSigned<kRows, kVectors>(weights.weight + kFirst, weights.sign + kFirst,
                                             weights.start[kSum], x + kFirst * 4, dot);
  } else if constexpr (HasRowVectors<Isa>) {
    StartDots<Isa, kFormat, kRows>(neg_sum, dot);
    DotVectors<Isa, kRows, kFirst, kFirst + kVectors>(UnpackedWeights<Isa>{weights.weight}, x, dot);
  } else if constexpr (Isa::kSignedWeights) {
    Isa::template DotSmall<kFormat.value_bits(), kRows, kVectors>(weights.weight + kFirst, x + kFirst * 4,
                                                                  dot);
    if constexpr (kFormat.zero_point_log2 >= 0) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        dot[r] = Isa::Add(dot[r], Isa::template ShiftWords<kFormat.zero_point_log2>(Isa::Set(neg_sum[r])));
      }
    }
  } else {
    StartDots<Isa, kFormat, kRows>(neg_sum, dot);
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const auto weight = Isa::template PrepareWeight<false>(weights.weight[kFirst + v]);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        dot[r] = Isa::Dot(dot[r], weight, x + static_cast<size_t>(r) * kKBlock + (kFirst + v) * 4);
      }
    }
  }
}

// The sums of all rows between two chunks. They lie side by side: rows of the output are often a multiple of
// a page apart, so that few of them would fit into a cache at once.
template <class Isa>
struct ChunkSums {
  static constexpr size_t kRows = Isa::kChunkGroups * QuantizedActivations::kMaxGroupRows;
  alignas(64) float row[kRows][Isa::kLanes];
};

// Where sums of a tile's rows go: rows `stride` numbers apart, of which `outs` are stored.
struct SumsTo {
  float* at;
  size_t stride, outs;
};

// The integer sums of a chunk's products with a group of rows, computed when they are needed. An instruction
// set that multiplies whole groups has a `ChunkDots` of its own (int8_gemm_amx.inl).
template <class Isa, PanelFormat kFormat>
class VectorDots {
 public:
  using Chunk = WeightChunk<Isa, kFormat>;

  // Called with a chunk's weights, which it may change, and then with each group of rows.
  void Begin(Chunk* chunk) { chunk_ = chunk; }
  void Multiply(const TileRows&, size_t /*count*/) {}

  // Sum `kSum` of K block `s` with kRows rows; `x` is at (s, row).
  template <int kRows, size_t kSum>
  QUIRE_INLINE void Get(size_t s, size_t /*row*/, const TileRows& x, typename Isa::Int* dot) const {
    DotUnpacked<Isa, kFormat, kRows, kSum>(chunk_->k_block[s], x.template NegSum<kFormat.group, kSum>(),
                                           x.quants, dot);
  }

 private:
  const Chunk* chunk_ = nullptr;
};

template <class Isa, PanelFormat kFormat>
struct ChunkDotsOf {
  using Type = VectorDots<Isa, kFormat>;
};
template <class Isa, PanelFormat kFormat>
requires requires { typename Isa::template ChunkDots<kFormat>; }
struct ChunkDotsOf<Isa, kFormat> {
  using Type = typename Isa::template ChunkDots<kFormat>;
};

// A number of row r, for every output; where sums are those of pairs, of the pair that r is in.
template <class Isa, bool kPairs>
QUIRE_INLINE typename Isa::Float OfRowOrPair(const float* of_rows, int r) {
  if constexpr (kPairs) {
    return Isa::SetPair(of_rows + static_cast<size_t>(r) / 2 * 2);
  } else {
    return Isa::Set(of_rows[r]);
  }
}

// Adds a chunk's products with rows [row, row + kRows) of a group to the sums `from`, or to 0 where that is
// null.
template <class Isa, PanelFormat kFormat, int kRows, class Dots>
QUIRE_INLINE void MultiplyChunk(const WeightChunk<Isa, kFormat>& chunk, const Dots& dots, size_t row,
                                TileRows x, const float (*from)[Isa::kLanes], const SumsTo& to) {
  using Int = typename Isa::Int;
  using Float = typename Isa::Float;
  constexpr bool kPairs = InPairs<Isa, kRows>();
  Float sum[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    sum[r] = from == nullptr ? Isa::ZeroFloat() : Isa::LoadSums(from[r]);
  }
  if constexpr (kPairs) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r += 2) Isa::StartPair(sum + r, sum + r + 1);
  }
  for (size_t s = 0; s < chunk.count; ++s, x.Next()) {
    const auto& weights = chunk.k_block[s];
    const auto add = [&]<size_t kSum>() QUIRE_INLINE_LAMBDA {
      Int dot[kRows];
      dots.template Get<kRows, kSum>(s, row, x, dot);
      const float* const total = x.template Total<kFormat.group, kSum>();
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const size_t form = kPairs ? 1 + static_cast<size_t>(r % 2) : 0;
        sum[r] =
            Isa::MulAdd(Isa::ToFloat(dot[r]),
                        Isa::Mul(weights.scale[kSum][form], OfRowOrPair<Isa, kPairs>(x.scale, r)), sum[r]);
        if constexpr (kFormat.min_offset) {
          sum[r] = Isa::MulAdd(weights.min_offset[kSum][form], OfRowOrPair<Isa, kPairs>(total, r), sum[r]);
        }
      }
    };
    add.template operator()<0>();
    if constexpr (kFormat.group == 16) add.template operator()<1>();
  }
  if constexpr (kPairs) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r += 2) Isa::FinishPair(sum + r, sum + r + 1);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    Isa::Store(sum[r], to.at + static_cast<size_t>(r) * to.stride, to.outs);
  }
}

// Rows [row, ...) of a group by tiles of kRows and then smaller ones. `x`, `from` and `to` are those of the
// group's row 0 at the chunk's first K block.
template <class Isa, PanelFormat kFormat, int kRows, class Dots>
void RunChunk(const WeightChunk<Isa, kFormat>& chunk, const Dots& dots, const TileRows& x, size_t row,
              const float (*from)[Isa::kLanes], const SumsTo& to) {
  for (; row + kRows <= x.count; row += kRows) {
    MultiplyChunk<Isa, kFormat, kRows>(chunk, dots, row, x.FromRow(row),
                                       from == nullptr ? nullptr : from + row,
                                       {to.at + row * to.stride, to.stride, to.outs});
  }
  if constexpr (kRows > 1) {
    constexpr int kNext = kRows > 8 ? 8 : kRows > 4 ? 4 : kRows / 2;
    if (row < x.count) RunChunk<Isa, kFormat, kNext>(chunk, dots, x, row, from, to);
  }
}

// Where a group's last sums will go: they would hold up the stores behind them.
template <class Isa>
void PrefetchOutputs(const GemmTask& work, const PanelHalf<Isa>& half,
                     const QuantizedActivations::Group& group) {
  float* const y = work.y + group.row * work.out + half.out;
  for (size_t row = 0; row < group.count; ++row) __builtin_prefetch(y + row * work.out, 1);
}

// A panel's half with many rows.
template <class Isa, PanelFormat kFormat>
void MultiplyManyRows(const GemmTask& work, const PanelHalf<Isa>& half,
                      std::span<const QuantizedActivations::Group> groups) {
  WeightChunk<Isa, kFormat> chunk;
  typename ChunkDotsOf<Isa, kFormat>::Type dots;
  ChunkSums<Isa> sums;
  const size_t k_blocks = work.in / kKBlock;
  for (size_t first = 0; first < k_blocks; first += chunk.count) {
    const size_t left = k_blocks - first;
    UnpackChunk<Isa, kFormat>(half, work.in, first, left < chunk.kKBlocks ? left : chunk.kKBlocks, &chunk);
    dots.Begin(&chunk);
    const bool last = first + chunk.count == k_blocks;
    if (last) PrefetchOutputs(work, half, groups.front());
    for (const QuantizedActivations::Group& group : groups) {
      float* const y = work.y + group.row * work.out + half.out;
      float(*const between)[Isa::kLanes] = sums.row + (group.row - groups.front().row);
      if (last && &group != &groups.back()) PrefetchOutputs(work, half, (&group)[1]);
      TileRows x(*work.rows, group, 0);
      x.Next(first);
      dots.Multiply(x, chunk.count);
      RunChunk<Isa, kFormat, Isa::template kChunkRows<kFormat>>(
          chunk, dots, x, 0, first == 0 ? nullptr : between,
          last ? SumsTo{y, work.out, half.outs} : SumsTo{between[0], Isa::kLanes, Isa::kLanes});
    }
  }
}
