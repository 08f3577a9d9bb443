// NEON primitives for products with panels (int8_gemm.inl), shared by what multiplies. Included inside an
// unnamed namespace, behind the target of whoever compiles it. Weights are signed bytes everywhere: quants
// have at most 7 bits or are biased by 128.

struct Neon {
  struct Int {  // bytes of 8 outputs, or their sums
    int32x4_t half[2];
  };
  struct Float {  // of 8 outputs
    float32x4_t half[2];
  };
  static constexpr size_t kLanes = 8;
  static constexpr int kRowsMax =
      4;  // 8 sums, 8 dots, 2 weights and 16 elements of 4 rows: 22 of 32 registers; 6 rows spill
  static constexpr bool kSignedWeights = true;
  // With DotProd, in cycles of a Neoverse N1 by llvm-mca: unpacking a K block takes 27 to 56. A row then
  // takes 2 to 3 fewer with Q8_0 and Q4_0, 6 with Q4_K and 14 with Q6_K.
  template <PanelFormat kFormat>
  static constexpr size_t kManyRows = kFormat.group == 0 ? 16 : 8;
  static constexpr size_t kChunkGroups = 16;
  static constexpr size_t kChunk = 256;
  template <PanelFormat>
  static constexpr int kChunkRows = 4;

  QUIRE_INLINE static uint8x16_t Bytes(int32x4_t a) { return vreinterpretq_u8_s32(a); }
  QUIRE_INLINE static int32x4_t Words(uint8x16_t a) { return vreinterpretq_s32_u8(a); }

  QUIRE_INLINE static Int ZeroInt() { return Set(0); }
  QUIRE_INLINE static Float ZeroFloat() { return Set(0.0F); }
  QUIRE_INLINE static Int Set(int32_t value) { return {{vdupq_n_s32(value), vdupq_n_s32(value)}}; }
  QUIRE_INLINE static Float Set(float value) { return {{vdupq_n_f32(value), vdupq_n_f32(value)}}; }
  QUIRE_INLINE static Int Load(const std::byte* from) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
    return {{Words(vld1q_u8(bytes)), Words(vld1q_u8(bytes + 16))}};
  }
  QUIRE_INLINE static Int And(Int a, uint8_t mask) {
    const uint8x16_t bits = vdupq_n_u8(mask);
    return {{Words(vandq_u8(Bytes(a.half[0]), bits)), Words(vandq_u8(Bytes(a.half[1]), bits))}};
  }
  QUIRE_INLINE static Int Or(Int a, Int b) {
    return {{vorrq_s32(a.half[0], b.half[0]), vorrq_s32(a.half[1], b.half[1])}};
  }
  // Shifts bytes: nothing crosses from one to the next. Left, or right where kBy is negative.
  template <int kBy>
  QUIRE_INLINE static Int Shift(Int a) {
    if constexpr (kBy > 0) {
      return {{Words(vshlq_n_u8(Bytes(a.half[0]), kBy)), Words(vshlq_n_u8(Bytes(a.half[1]), kBy))}};
    } else if constexpr (kBy < 0) {
      return {{Words(vshrq_n_u8(Bytes(a.half[0]), -kBy)), Words(vshrq_n_u8(Bytes(a.half[1]), -kBy))}};
    } else {
      return a;
    }
  }
  template <int kBy>
  QUIRE_INLINE static Int ShiftWords(Int a) {
    return {{vshlq_n_s32(a.half[0], kBy), vshlq_n_s32(a.half[1], kBy)}};
  }
  template <weights::Codebook kCodebook>
  QUIRE_INLINE static Int LookUp(Int codes) {
    const uint8x16_t table = vld1q_u8(kBiasedCodebooks[static_cast<size_t>(kCodebook)].data());
    return {{Words(vqtbl1q_u8(table, Bytes(codes.half[0]))), Words(vqtbl1q_u8(table, Bytes(codes.half[1])))}};
  }
  template <bool kBiased>
  QUIRE_INLINE static Int PrepareWeight(Int quants) {
    if constexpr (kBiased) {
      const uint8x16_t bias = vdupq_n_u8(0x80);
      return {{Words(veorq_u8(Bytes(quants.half[0]), bias)), Words(veorq_u8(Bytes(quants.half[1]), bias))}};
    } else {
      return quants;
    }
  }
  QUIRE_INLINE static int8x16_t Four(const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, sizeof(four));
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
  }
  QUIRE_INLINE static Float ToFloat(Int a) { return {{vcvtq_f32_s32(a.half[0]), vcvtq_f32_s32(a.half[1])}}; }
  QUIRE_INLINE static Float Mul(Float a, Float b) {
    return {{vmulq_f32(a.half[0], b.half[0]), vmulq_f32(a.half[1], b.half[1])}};
  }
  QUIRE_INLINE static Float NegMul(Float a, Float b) {
    const float32x4_t zero = vdupq_n_f32(0);
    return {
        {vmulq_f32(vsubq_f32(zero, a.half[0]), b.half[0]), vmulq_f32(vsubq_f32(zero, a.half[1]), b.half[1])}};
  }
  QUIRE_INLINE static Float MulAdd(Float a, Float b, Float c) {
    return {{vfmaq_f32(c.half[0], a.half[0], b.half[0]), vfmaq_f32(c.half[1], a.half[1], b.half[1])}};
  }
  QUIRE_INLINE static Float Half(const std::byte* from) {
    const float16x8_t all = vreinterpretq_f16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(from)));
    return {{vcvt_f32_f16(vget_low_f16(all)), vcvt_high_f32_f16(all)}};
  }
  QUIRE_INLINE static Float LoadSubScale(const std::byte* from) {
    const int16x8_t all = vmovl_s8(vld1_s8(reinterpret_cast<const int8_t*>(from)));
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(all))), vcvtq_f32_s32(vmovl_high_s16(all))}};
  }
  // 2^(e - 128).
  QUIRE_INLINE static Float PowerOfTwo(const std::byte* from) {
    const uint16x8_t all = vmovl_u8(vld1_u8(reinterpret_cast<const uint8_t*>(from)));
    return {{PowerOfTwo(vmovl_u16(vget_low_u16(all))), PowerOfTwo(vmovl_high_u16(all))}};
  }
  QUIRE_INLINE static float32x4_t PowerOfTwo(uint32x4_t e) {
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), subnormal, normal));
  }
  QUIRE_INLINE static Float LoadSums(const float* from) { return {{vld1q_f32(from), vld1q_f32(from + 4)}}; }
  QUIRE_INLINE static void Store(Float sum, float* to, size_t outs) {
    if (outs >= kLanes) {
      vst1q_f32(to, sum.half[0]);
      vst1q_f32(to + 4, sum.half[1]);
      return;
    }
    float all[kLanes];
    vst1q_f32(all, sum.half[0]);
    vst1q_f32(all + 4, sum.half[1]);
    std::memcpy(to, all, outs * sizeof(float));
  }
};
