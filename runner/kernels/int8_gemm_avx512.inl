// AVX-512 VNNI primitives for products with panels (int8_gemm.inl). Included inside an unnamed namespace,
// behind the target of whoever compiles it.

struct Avx512 {
  using Int = __m512i;   // bytes of 16 outputs, or their sums
  using Float = __m512;  // of 16 outputs
  static constexpr size_t kLanes = 16;
  static constexpr int kRowsMax = 12;  // 12 sums, 12 dots, a weight: 25 of 32 registers
  static constexpr bool kSignedWeights = false;
  // Only small scales cost more than the making of chunks.
  template <PanelFormat kFormat>
  static constexpr size_t kManyRows = kFormat.group == 0 ? 0 : 13;
  static constexpr size_t kChunkGroups = 32;
  static constexpr size_t kChunk = 512;
  template <PanelFormat>
  static constexpr int kChunkRows = 12;

  QUIRE_INLINE static Int ZeroInt() { return _mm512_setzero_si512(); }
  QUIRE_INLINE static Float ZeroFloat() { return _mm512_setzero_ps(); }
  QUIRE_INLINE static Int Set(int32_t value) { return _mm512_set1_epi32(value); }
  QUIRE_INLINE static Float Set(float value) { return _mm512_set1_ps(value); }
  QUIRE_INLINE static Int Load(const std::byte* from) { return _mm512_loadu_si512(from); }
  QUIRE_INLINE static Int And(Int a, uint8_t mask) {
    return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask)));
  }
  QUIRE_INLINE static Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
  // Shifts 16-bit words: what crosses from byte to byte is masked away. Left, or right where kBy is negative.
  template <int kBy>
  QUIRE_INLINE static Int Shift(Int a) {
    if constexpr (kBy > 0) {
      return _mm512_slli_epi16(a, kBy);
    } else if constexpr (kBy < 0) {
      return _mm512_srli_epi16(a, -kBy);
    } else {
      return a;
    }
  }
  template <int kBy>
  QUIRE_INLINE static Int ShiftWords(Int a) {
    return _mm512_slli_epi32(a, kBy);
  }
  template <weights::Codebook kCodebook>
  QUIRE_INLINE static Int LookUp(Int codes) {
    const __m128i table = _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(kBiasedCodebooks[static_cast<size_t>(kCodebook)].data()));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes);
  }
  template <bool>
  QUIRE_INLINE static Int PrepareWeight(Int quants) {
    return quants;
  }
  QUIRE_INLINE static Int Dot(Int sum, Int weight, const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, sizeof(four));
    return _mm512_dpbusd_epi32(sum, weight, _mm512_set1_epi32(four));
  }
  QUIRE_INLINE static Float ToFloat(Int a) { return _mm512_cvtepi32_ps(a); }
  QUIRE_INLINE static Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  QUIRE_INLINE static Float NegMul(Float a, Float b) {
    return _mm512_mul_ps(_mm512_sub_ps(ZeroFloat(), a), b);
  }
  QUIRE_INLINE static Float MulAdd(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  QUIRE_INLINE static Float Half(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  QUIRE_INLINE static Float LoadSubScale(const std::byte* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  // 2^(e - 128).
  QUIRE_INLINE static Float PowerOfTwo(const std::byte* from) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, Set(1)), 23);
    const __m512i subnormal = _mm512_sllv_epi32(Set(0x00200000), e);
    return _mm512_castsi512_ps(
        _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(e, Set(2)), normal, subnormal));
  }
  QUIRE_INLINE static Float LoadSums(const float* from) { return _mm512_load_ps(from); }  // aligned
  QUIRE_INLINE static void Store(Float sum, float* to, size_t outs) {
    if (outs >= kLanes) return _mm512_storeu_ps(to, sum);
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << outs) - 1), sum);
  }
};
