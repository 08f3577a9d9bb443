// Both halves of a panel at once, for instruction sets whose vectors have half of its outputs. Included by
// int8_gemm.inl.
//
// A few rows wait for memory. They read a panel from its first byte to its last, so that the next bytes are
// fetched all the time; half by half, memory rests during the second half, which is in the cache by then. A
// row's bytes and scales serve both halves.

template <class Isa>
struct Twice {
  struct Int {
    typename Isa::Int a, b;
  };
  struct Float {
    typename Isa::Float a, b;
  };
  template <bool kBiased>
  struct Weight {
    decltype(Isa::template PrepareWeight<kBiased>(Isa::ZeroInt())) a, b;
  };
  static constexpr size_t kLanes = 2 * Isa::kLanes;
  static constexpr int kRowsMax = Isa::kTogetherRows;
  static constexpr bool kSignedWeights = Isa::kSignedWeights;

  QUIRE_INLINE static Int ZeroInt() { return {Isa::ZeroInt(), Isa::ZeroInt()}; }
  QUIRE_INLINE static Float ZeroFloat() { return {Isa::ZeroFloat(), Isa::ZeroFloat()}; }
  QUIRE_INLINE static Int Set(int32_t value) { return {Isa::Set(value), Isa::Set(value)}; }
  QUIRE_INLINE static Float Set(float value) { return {Isa::Set(value), Isa::Set(value)}; }
  QUIRE_INLINE static Int Load(const std::byte* from) {
    return {Isa::Load(from), Isa::Load(from + Isa::kLanes * 4)};
  }
  QUIRE_INLINE static Int And(Int v, uint8_t mask) { return {Isa::And(v.a, mask), Isa::And(v.b, mask)}; }
  QUIRE_INLINE static Int Or(Int v, Int w) { return {Isa::Or(v.a, w.a), Isa::Or(v.b, w.b)}; }
  template <int kBy>
  QUIRE_INLINE static Int Shift(Int v) {
    return {Isa::template Shift<kBy>(v.a), Isa::template Shift<kBy>(v.b)};
  }
  template <int kBy>
  QUIRE_INLINE static Int ShiftWords(Int v) {
    return {Isa::template ShiftWords<kBy>(v.a), Isa::template ShiftWords<kBy>(v.b)};
  }
  template <weights::Codebook kCodebook>
  QUIRE_INLINE static Int LookUp(Int codes) {
    return {Isa::template LookUp<kCodebook>(codes.a), Isa::template LookUp<kCodebook>(codes.b)};
  }
  template <bool kBiased>
  QUIRE_INLINE static Weight<kBiased> PrepareWeight(Int quants) {
    return {Isa::template PrepareWeight<kBiased>(quants.a), Isa::template PrepareWeight<kBiased>(quants.b)};
  }
  template <bool kBiased>
  QUIRE_INLINE static Int Dot(Int sum, Weight<kBiased> weight, const int8_t* x) {
    return {Isa::Dot(sum.a, weight.a, x), Isa::Dot(sum.b, weight.b, x)};
  }
  QUIRE_INLINE static Float ToFloat(Int v) { return {Isa::ToFloat(v.a), Isa::ToFloat(v.b)}; }
  QUIRE_INLINE static Float Mul(Float v, Float w) { return {Isa::Mul(v.a, w.a), Isa::Mul(v.b, w.b)}; }
  QUIRE_INLINE static Float NegMul(Float v, Float w) { return {Isa::NegMul(v.a, w.a), Isa::NegMul(v.b, w.b)}; }
  QUIRE_INLINE static Float MulAdd(Float v, Float w, Float sum) {
    return {Isa::MulAdd(v.a, w.a, sum.a), Isa::MulAdd(v.b, w.b, sum.b)};
  }
  QUIRE_INLINE static Float Half(const std::byte* from) {
    return {Isa::Half(from), Isa::Half(from + Isa::kLanes * 2)};
  }
  QUIRE_INLINE static Float LoadSubScale(const std::byte* from) {
    return {Isa::LoadSubScale(from), Isa::LoadSubScale(from + Isa::kLanes)};
  }
  QUIRE_INLINE static Float PowerOfTwo(const std::byte* from) {
    return {Isa::PowerOfTwo(from), Isa::PowerOfTwo(from + Isa::kLanes)};
  }
  QUIRE_INLINE static void Store(Float sum, float* to, size_t outs) {
    Isa::Store(sum.a, to, outs);
    if (outs > Isa::kLanes) Isa::Store(sum.b, to + Isa::kLanes, outs - Isa::kLanes);
  }
};

// Whether these groups of rows meet both halves of a panel at once. Isa::kTogetherRows is as many rows as a
// tile then has.
template <class Isa>
bool AreTogether(std::span<const QuantizedActivations::Group> groups) {
  if constexpr (requires { Isa::kTogetherRows; }) {
    for (const QuantizedActivations::Group& group : groups) {
      if (group.count > static_cast<size_t>(Isa::kTogetherRows)) return false;
    }
    return true;
  } else {
    return false;
  }
}
