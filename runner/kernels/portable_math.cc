#include "runner/kernels/portable_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace quire::runner::kernels {
namespace {

// 1 / n!, for n = 0, 1, ...
template <size_t kCount>
constexpr std::array<double, kCount> InverseFactorials() {
  std::array<double, kCount> all{};
  double factorial = 1;  // exact up to 18!
  for (size_t n = 0; n < kCount; ++n) {
    if (n > 0) factorial *= static_cast<double>(n);
    all[n] = 1 / factorial;
  }
  return all;
}
constexpr auto kInverseFactorials = InverseFactorials<18>();

// log(2) and pi / 2 in parts; products of the first ones with small integers are exact.
constexpr double kLog2First = 0x1.62e42feep-1, kLog2Rest = 0x1.a39ef35793c76p-33;
constexpr double kQuarterFirst = 0x1.921fb544p+0, kQuarterSecond = 0x1.0b4611a6p-34,
                 kQuarterRest = 0x1.3198a2e037073p-69;

double Nearest(double x) { return static_cast<double>(static_cast<int64_t>(x + (x < 0 ? -0.5 : 0.5))); }

// exp(x). REQUIRES: |x| < 256.
double ExpOf(double x) {
  const double k = Nearest(x * 1.4426950408889634);
  const double r = (x - k * kLog2First) - k * kLog2Rest;  // |r| < 0.35
  double sum = kInverseFactorials[13];
  for (size_t n = 13; n-- > 0;) sum = sum * r + kInverseFactorials[n];
  return sum * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(k) + 1023) << 52);
}

// log(x). REQUIRES: x is a normal number above 0.
double LogOf(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // 2 artanh(f) = 2 (f + f^3 / 3 + ...), |f| < 0.172
  const double f = (m - 1) / (m + 1), square = f * f;
  double sum = 0;
  for (int n = 23; n > 0; n -= 2) sum = sum * square + 1.0 / n;
  const auto k = static_cast<double>(exponent);
  return k * kLog2First + (k * kLog2Rest + 2 * f * sum);
}

constexpr float Clamped(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

}  // namespace

float Exp(float x) {
  if (std::isnan(x)) return x;
  return static_cast<float>(ExpOf(static_cast<double>(Clamped(x, -110, 90))));  // 0 and infinity beyond
}

float Softplus(float x) {
  if (x > 20 || std::isnan(x)) return x;
  const double e = ExpOf(static_cast<double>(Clamped(x, -110, 20)));
  if (e < 1e-7) return static_cast<float>(e - 0.5 * e * e);
  const double sum = 1 + e, lost = e - (sum - 1);
  return static_cast<float>(LogOf(sum) + lost / sum);
}

float Sigmoid(float x) { return 1.0F / (1.0F + Exp(-x)); }

float Tanh(float x) {
  if (std::isnan(x)) return x;
  const auto wide = static_cast<double>(Clamped(x, -10, 10));
  if (wide > -1e-4 && wide < 1e-4) return static_cast<float>(wide - wide * wide * wide / 3);
  const double e = ExpOf(2 * wide);
  return static_cast<float>((e - 1) / (e + 1));
}

SineCosine SineAndCosine(double angle) {
  if (!(angle > -1'048'576 && angle < 1'048'576)) return {std::sin(angle), std::cos(angle)};
  const double k = Nearest(angle * 0.6366197723675814);
  const double r = ((angle - k * kQuarterFirst) - k * kQuarterSecond) - k * kQuarterRest;  // |r| < 0.79
  const double square = r * r;
  double sine = 0, cosine = 0;
  for (size_t n = 8; n-- > 0;) {
    sine = kInverseFactorials[2 * n + 1] - square * sine;
    cosine = kInverseFactorials[2 * n + 2] - square * cosine;
  }
  sine *= r;
  cosine = 1 - square * cosine;
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace quire::runner::kernels
