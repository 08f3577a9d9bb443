// int8 GEMM of a panel with a group of rows, for an instruction set `Isa` (see int8_gemm_avx512.cc for
// what it offers). Included once per instruction set, inside an unnamed namespace.

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
    const auto low =
        Isa::And(Isa::template Shift<-2 * (kAt % 4)>(Isa::Load(k_block + kVector / 4 * 64)), 0x03);
    if constexpr (kFormat.bits == 3) {
      return Isa::Or(low, Isa::And(Isa::template Shift<2 - kAt>(Isa::Load(k_block + 128)), 0x04));
    } else {
      return low;
    }
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
  QUIRE_INLINE void Next() {
    quants += count * kKBlock;
    scale += count;
    neg_sum += count;
    neg_sum_first += count;
    neg_sum_last += count;
    total += count;
    first_total += count;
    last_total += count;
  }
};

// Vectors [kVector, kEnd) of a K block times kRows rows.
template <class Isa, PanelFormat kFormat, int kRows, size_t kVector, size_t kEnd>
QUIRE_INLINE void DotKBlock(const std::byte* k_block, const TileRows& x, typename Isa::Int* dot) {
  constexpr bool kBiased = kFormat.zero_point_log2 == 7;  // quants are signed numbers, biased by 128
  const auto weight = Isa::template PrepareWeight<kBiased>(KBlockVector<Isa, kFormat, kVector>(k_block));
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    dot[r] = Isa::Dot(dot[r], weight, x.quants + static_cast<size_t>(r) * kKBlock + kVector * 4);
  }
  if constexpr (kVector + 1 < kEnd) DotKBlock<Isa, kFormat, kRows, kVector + 1, kEnd>(k_block, x, dot);
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
    // Float16 scales are two bytes apart where `scales` counts one.
    const Float scale = kFormat.exponent ? Isa::PowerOfTwo(scales) : Isa::Half(scales + lane);
    const Float min_offset =
        kFormat.min_offset ? Isa::Half(scales + kFormat.min_offset_at() + lane) : Isa::ZeroFloat();
    for (size_t s = 0; s < kKBlocks; ++s, k_block += kFormat.k_block_bytes(), x.Next()) {
      if (first) {
        for (size_t line = 0; line < kFormat.k_block_bytes(); line += 64)
          __builtin_prefetch(k_block + kPrefetch + line, 0, 2);
      }
      Int dot[kRows];
      if constexpr (kFormat.group == 16) {
        const std::byte* group = scales + kFormat.group_scale_at() + 2 * s * kPanelOuts;
        const std::byte* least = scales + kFormat.group_min_offset_at() + 2 * s * kPanelOuts;
        StartDots<Isa, kFormat, kRows>(x.neg_sum_first, dot);
        DotKBlock<Isa, kFormat, kRows, 0, 4>(k_block, x, dot);
        add(dot, Isa::Mul(scale, Isa::LoadSubScale(group)));
        if constexpr (kFormat.min_offset)
          add_min_offset(Isa::NegMul(min_offset, Isa::LoadSubScale(least)), x.first_total);
        StartDots<Isa, kFormat, kRows>(x.neg_sum_last, dot);
        DotKBlock<Isa, kFormat, kRows, 4, 8>(k_block, x, dot);
        add(dot, Isa::Mul(scale, Isa::LoadSubScale(group + kPanelOuts)));
        if constexpr (kFormat.min_offset) {
          add_min_offset(Isa::NegMul(min_offset, Isa::LoadSubScale(least + kPanelOuts)), x.last_total);
        }
      } else {
        StartDots<Isa, kFormat, kRows>(x.neg_sum, dot);
        DotKBlock<Isa, kFormat, kRows, 0, 8>(k_block, x, dot);
        if constexpr (kFormat.group == 32) {
          add(dot, Isa::Mul(scale, Isa::LoadSubScale(scales + kFormat.group_scale_at() + s * kPanelOuts)));
          if constexpr (kFormat.min_offset) {
            add_min_offset(Isa::NegMul(min_offset, Isa::LoadSubScale(scales + kFormat.group_min_offset_at() +
                                                                     s * kPanelOuts)),
                           x.total);
          }
        } else {
          add(dot, scale);
          if constexpr (kFormat.min_offset) add_min_offset(min_offset, x.total);
        }
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

// Activations worked on at a time, so that they stay in the second-level cache while panels pass.
constexpr size_t kActivationBytes = 393'216;

template <class Isa, PanelFormat kFormat>
void Gemm(const GemmTask& work) {
  const size_t panel_bytes = PanelBytes(kFormat, static_cast<int64_t>(work.in));
  const size_t group_bytes = QuantizedActivations::kGroupRows * work.in;
  const size_t at_once = group_bytes < kActivationBytes ? kActivationBytes / group_bytes : 1;
  for (size_t g = work.first_group; g < work.last_group; g += at_once) {
    const size_t last = work.last_group - g < at_once ? work.last_group : g + at_once;
    for (size_t p = work.begin; p < work.end; ++p) {
      const std::byte* panel = work.panels + p * panel_bytes;
      for (size_t i = g; i < last; ++i) {
        const QuantizedActivations::Group& group = work.rows->groups()[i];
        for (size_t half = 0; half * Isa::kLanes < kPanelOuts; ++half) {
          const size_t out = p * kPanelOuts + half * Isa::kLanes;
          if (out >= work.out) break;
          RunMicroKernels<Isa, kFormat, Isa::kRowsMax>(
              work, panel, half, group, 0, i == g, work.y + group.row * work.out + out,
              work.out - out < Isa::kLanes ? work.out - out : Isa::kLanes);
        }
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
