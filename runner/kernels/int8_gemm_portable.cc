#include <bit>
#include <cmath>
#include <cstring>

#include "runner/kernels/int8_gemm.h"
#include "runner/weights/float_bits.h"

#define QUIRE_INLINE [[gnu::always_inline]] inline
#define QUIRE_INLINE_LAMBDA __attribute__((always_inline))

namespace quire::runner::kernels {
namespace {

// Plain loops over four outputs, which compilers turn into whatever vectors the machine has.
struct Portable {
  static constexpr size_t kLanes = 4;
  static constexpr int kRowsMax = 1;
  static constexpr bool kSignedWeights = false;
  template <PanelFormat>
  static constexpr size_t kManyRows = 0;
  static constexpr size_t kChunkGroups = 32;

  struct Int {
    int32_t lane[kLanes];
  };
  struct Float {
    float lane[kLanes];
  };
  struct Bytes {
    uint8_t byte[4 * kLanes];
  };

  template <class To, class F>
  QUIRE_INLINE static To Each(F f) {
    To to;
    for (size_t i = 0; i < kLanes; ++i) to.lane[i] = f(i);
    return to;
  }
  static uint32_t Bits(Int a, size_t i) { return static_cast<uint32_t>(a.lane[i]); }

  static Int ZeroInt() { return Set(0); }
  static Float ZeroFloat() { return Set(0.0F); }
  static Int Set(int32_t value) {
    return Each<Int>([=](size_t) { return value; });
  }
  static Float Set(float value) {
    return Each<Float>([=](size_t) { return value; });
  }
  static Int Load(const std::byte* from) {
    Int to;
    std::memcpy(&to, from, sizeof(to));
    return to;
  }
  static Int And(Int a, uint8_t mask) {
    return Each<Int>([=](size_t i) { return static_cast<int32_t>(Bits(a, i) & mask * 0x01010101U); });
  }
  static Int Or(Int a, Int b) {
    return Each<Int>([=](size_t i) { return static_cast<int32_t>(Bits(a, i) | Bits(b, i)); });
  }
  // Bits that cross into the next byte are masked. Left, or right where kBy is negative.
  template <int kBy>
  static Int Shift(Int a) {
    return Each<Int>([=](size_t i) {
      if constexpr (kBy > 0) {
        return static_cast<int32_t>(Bits(a, i) << static_cast<unsigned>(kBy));
      } else {
        return static_cast<int32_t>(Bits(a, i) >> static_cast<unsigned>(-kBy));
      }
    });
  }
  template <int kBy>
  static Int ShiftWords(Int a) {
    return Shift<kBy>(a);
  }
  template <weights::Codebook kCodebook>
  static Int LookUp(Int codes) {
    auto bytes = std::bit_cast<Bytes>(codes);
    for (uint8_t& byte : bytes.byte) byte = kBiasedCodebooks[static_cast<size_t>(kCodebook)][byte];
    return std::bit_cast<Int>(bytes);
  }
  template <bool>
  static Bytes PrepareWeight(Int quants) {
    return std::bit_cast<Bytes>(quants);
  }
  static Int Dot(Int sum, Bytes weight, const int8_t* x) {
    for (size_t i = 0; i < kLanes; ++i) {
      for (size_t k = 0; k < 4; ++k) sum.lane[i] += weight.byte[4 * i + k] * x[k];
    }
    return sum;
  }
  static Float ToFloat(Int a) {
    return Each<Float>([=](size_t i) { return static_cast<float>(a.lane[i]); });
  }
  static Float Mul(Float a, Float b) {
    return Each<Float>([=](size_t i) { return a.lane[i] * b.lane[i]; });
  }
  static Float NegMul(Float a, Float b) {
    return Each<Float>([=](size_t i) { return (0.0F - a.lane[i]) * b.lane[i]; });
  }
  static Float MulAdd(Float a, Float b, Float c) {
    return Each<Float>([=](size_t i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static Float Half(const std::byte* from) {
    return Each<Float>([=](size_t i) { return weights::LoadF16(from + 2 * i); });
  }
  static Float LoadSubScale(const std::byte* from) {
    return Each<Float>([=](size_t i) { return static_cast<float>(static_cast<int8_t>(from[i])); });
  }
  // 2^(e - 128).
  static Float PowerOfTwo(const std::byte* from) {
    return Each<Float>([=](size_t i) {
      const auto e = std::to_integer<uint32_t>(from[i]);
      return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : (e - 1) << 23);
    });
  }
  static void Store(Float sum, float* to, size_t outs) {
    std::memcpy(to, sum.lane, (outs < kLanes ? outs : kLanes) * sizeof(float));
  }
};

#include "runner/kernels/int8_gemm.inl"

}  // namespace

Int8Gemm* Int8GemmPortable(weights::DataType type) { return Int8GemmOf<Portable>(type); }

}  // namespace quire::runner::kernels
