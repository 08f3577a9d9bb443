// AVX2 primitives for products with panels (int8_gemm.inl). Included inside an unnamed namespace, behind
// the target of whoever compiles it.

struct Avx2 {
  using Int = __m256i;   // bytes of 8 outputs, or their sums
  using Float = __m256;  // of 8 outputs
  static constexpr size_t kLanes = 8;
  static constexpr int kRowsMax = 4;  // 4 sums, 4 dots, a weight and its work: 16 registers
  static constexpr int kTogetherRows = 2;
  // Products of two full bytes overflow 16 bits in pairs, unless one is a size of at most 128.
  static constexpr bool kSignedWeights = true;
  // Signs cost more to unpack.
  template <PanelFormat kFormat>
  static constexpr size_t kManyRows = kFormat.zero_point_log2 == 7 ? 13 : 5;
  // 192 rows of a chunk come from the second-level cache; fewer would have chunks unpacked more often.
  static constexpr size_t kChunkGroups = 16;
  static constexpr size_t kChunk = 512;
  // Sums, dots or pairs, a weight, its signs, ones and a product. Numbers of 5 and 6 bits have dots beside
  // pairs: with 5 bits sums are in memory, which costs less than fewer rows would.
  template <PanelFormat kFormat>
  static constexpr int kChunkRows = kFormat.value_bits() == 6 ? 4 : 6;

  struct Unsigned {
    Int quants;
  };
  struct Signed {
    Int size, value;
  };

  QUIRE_INLINE static Int ZeroInt() { return _mm256_setzero_si256(); }
  QUIRE_INLINE static Float ZeroFloat() { return _mm256_setzero_ps(); }
  QUIRE_INLINE static Int Set(int32_t value) { return _mm256_set1_epi32(value); }
  QUIRE_INLINE static Float Set(float value) { return _mm256_set1_ps(value); }
  QUIRE_INLINE static Int Load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  QUIRE_INLINE static Int And(Int a, uint8_t mask) {
    return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask)));
  }
  QUIRE_INLINE static Int Or(Int a, Int b) { return _mm256_or_si256(a, b); }
  // Shifts 16-bit words: what crosses from byte to byte is masked away. Left, or right where kBy is negative.
  template <int kBy>
  QUIRE_INLINE static Int Shift(Int a) {
    if constexpr (kBy > 0) {
      return _mm256_slli_epi16(a, kBy);
    } else if constexpr (kBy < 0) {
      return _mm256_srli_epi16(a, -kBy);
    } else {
      return a;
    }
  }
  template <int kBy>
  QUIRE_INLINE static Int ShiftWords(Int a) {
    return _mm256_slli_epi32(a, kBy);
  }
  template <weights::Codebook kCodebook>
  QUIRE_INLINE static Int LookUp(Int codes) {
    const __m128i table = _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(kBiasedCodebooks[static_cast<size_t>(kCodebook)].data()));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
  }
  template <bool kBiased>
  QUIRE_INLINE static auto PrepareWeight(Int quants) {
    if constexpr (kBiased) {
      const Int value = _mm256_xor_si256(quants, _mm256_set1_epi8(static_cast<char>(0x80)));
      return Signed{_mm256_abs_epi8(value), value};
    } else {
      return Unsigned{quants};
    }
  }
  QUIRE_INLINE static Int Four(const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, sizeof(four));
    return _mm256_set1_epi32(four);
  }
  // Integer sums stay in the order they are written. GCC would make a tree of them, whose leaves for some
  // rows take more registers than there are.
  QUIRE_INLINE static Int InOrder(Int sum) {
    __asm__("" : "+x"(sum));
    return sum;
  }
  QUIRE_INLINE static Int AddPairs(Int sum, Int pairs) {
    return InOrder(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
  }
  QUIRE_INLINE static Int Dot(Int sum, Unsigned weight, const int8_t* x) {
    return AddPairs(sum, _mm256_maddubs_epi16(weight.quants, Four(x)));
  }
  QUIRE_INLINE static Int Dot(Int sum, Signed weight, const int8_t* x) {
    return AddPairs(sum, _mm256_maddubs_epi16(weight.size, _mm256_sign_epi8(Four(x), weight.value)));
  }
  QUIRE_INLINE static Int Add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  // Turns the vectors of a sum, at most 8, of biased quants w into their magnitudes and signs, 0 or -1. A
  // product w x is then |w| (x ^ sign), plus |w| where w is negative: returns the sum of these.
  template <size_t kVectors>
  QUIRE_INLINE static Int SplitSigns(Int* weight, Int* sign) {
    Int negative = ZeroInt();  // at most 16 magnitudes of 128
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
      const Int value = _mm256_xor_si256(weight[v], _mm256_set1_epi8(static_cast<char>(0x80)));
      weight[v] = _mm256_abs_epi8(value);
      sign[v] = _mm256_cmpgt_epi8(ZeroInt(), value);
      const Int pairs = _mm256_maddubs_epi16(_mm256_and_si256(weight[v], sign[v]), _mm256_set1_epi8(1));
      negative = _mm256_add_epi16(negative, pairs);
    }
    return _mm256_madd_epi16(negative, _mm256_set1_epi16(1));
  }
  // Products of kRows rows with kVectors vectors that SplitSigns() made.
  template <int kRows, size_t kVectors>
  QUIRE_INLINE static void DotSigned(const Int* weight, const Int* sign, Int start, const int8_t* x,
                                     Int* dot) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int value = _mm256_xor_si256(Four(x + static_cast<size_t>(r) * kKBlock + v * 4), sign[v]);
        dot[r] = AddPairs(v == 0 ? start : dot[r], _mm256_maddubs_epi16(weight[v], value));
      }
    }
  }
  // The same with numbers of kBits bits: as many pairs of products as 16 bits hold are added before they
  // become 32-bit sums.
  template <int kBits, int kRows, size_t kVectors>
  QUIRE_INLINE static void DotSmall(const Int* weight, const int8_t* x, Int* dot) {
    constexpr size_t kFit = 32'767 / (2 * 127 * ((1U << kBits) - 1)),
                     kRun = kFit < kVectors ? kFit : kVectors;
    static_assert(kRun >= 1 && kVectors % kRun == 0);
#pragma GCC unroll 8
    for (size_t v = 0; v < kVectors; v += kRun) {
      Int pairs[kRows];
#pragma GCC unroll 8
      for (size_t i = v; i < v + kRun; ++i) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const Int product =
              _mm256_maddubs_epi16(weight[i], Four(x + static_cast<size_t>(r) * kKBlock + i * 4));
          pairs[r] = i == v ? product : InOrder(_mm256_add_epi16(pairs[r], product));
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        dot[r] = v == 0 ? _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1)) : AddPairs(dot[r], pairs[r]);
      }
    }
  }
  QUIRE_INLINE static Float ToFloat(Int a) { return _mm256_cvtepi32_ps(a); }
  QUIRE_INLINE static Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  QUIRE_INLINE static Float NegMul(Float a, Float b) {
    return _mm256_mul_ps(_mm256_sub_ps(ZeroFloat(), a), b);
  }
  QUIRE_INLINE static Float MulAdd(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  QUIRE_INLINE static Float Half(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  QUIRE_INLINE static Float LoadSubScale(const std::byte* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  // 2^(e - 128).
  QUIRE_INLINE static Float PowerOfTwo(const std::byte* from) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, Set(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(Set(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(Set(2), e)));
  }
  QUIRE_INLINE static Float LoadSums(const float* from) { return _mm256_load_ps(from); }  // aligned
  QUIRE_INLINE static void Store(Float sum, float* to, size_t outs) {
    if (outs >= kLanes) return _mm256_storeu_ps(to, sum);
    alignas(32) float lanes[kLanes];
    _mm256_store_ps(lanes, sum);
    std::memcpy(to, lanes, outs * sizeof(float));
  }
};
