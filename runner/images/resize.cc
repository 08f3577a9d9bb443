#include "runner/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>
#include <vector>

#include "runner/work/work_budget.h"

namespace quire::runner::images {
namespace {

double Sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double WeightAt(Filter filter, double x) {
  x = std::abs(x);
  switch (filter) {
    case Filter::kBilinear:
      return x < 1 ? 1 - x : 0;
    case Filter::kBicubic: {
      constexpr double kA = -0.5;
      if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
    }
    case Filter::kLanczos:
      return x < 3 ? Sinc(x) * Sinc(x / 3) : 0;
  }
  return 0;
}

double Radius(Filter filter) { return filter == Filter::kBilinear ? 1 : filter == Filter::kBicubic ? 2 : 3; }

int64_t Truncated(double x) { return static_cast<int64_t>(x); }

// What the values along one axis are made of.
struct Taps {
  struct Value {
    size_t first;  // of the input
    size_t count;
    size_t weights;  // where its weights begin
  };
  std::vector<Value> values;
  std::vector<int16_t> weights;
  int32_t fraction_bits = 0;
};

Taps MakeTaps(int32_t in, int32_t out, Filter filter) {
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  const double radius = Radius(filter) * stretch;
  Taps taps;
  std::vector<double> weights;
  double largest = 0;
  for (int32_t i = 0; i < out; ++i) {
    const double center = scale * (i + 0.5);
    const int64_t first = std::max<int64_t>(Truncated(center - radius + 0.5), 0);
    const int64_t end = std::min<int64_t>(Truncated(center + radius + 0.5), in);
    const size_t begin = weights.size();
    double sum = 0;
    for (int64_t x = first; x < end; ++x) {
      weights.push_back(WeightAt(filter, (static_cast<double>(x) - center + 0.5) * (1 / stretch)));
      sum += weights.back();
    }
    for (size_t j = begin; j < weights.size(); ++j) {
      if (sum != 0) weights[j] /= sum;
      largest = std::max(largest, weights[j]);
    }
    taps.values.push_back({static_cast<size_t>(first), weights.size() - begin, begin});
  }
  while (taps.fraction_bits < 22 && 0.5 + largest * (2 << taps.fraction_bits) < (1 << 15)) {
    ++taps.fraction_bits;
  }
  taps.weights.reserve(weights.size());
  for (const double weight : weights) {
    const double scaled = weight * (1 << taps.fraction_bits);
    taps.weights.push_back(static_cast<int16_t>(static_cast<int32_t>(scaled + (scaled < 0 ? -0.5 : 0.5))));
  }
  return taps;
}

uint8_t Rounded(int32_t sum, int32_t fraction_bits) {
  return static_cast<uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
}

Bitmap ResizeRows(const Bitmap& image, int32_t width, Filter filter) {
  const Taps taps = MakeTaps(image.width, width, filter);
  const int32_t half = taps.fraction_bits == 0 ? 0 : 1 << (taps.fraction_bits - 1);
  Bitmap result{width, image.height, {}};
  result.rgb.resize(static_cast<size_t>(width) * static_cast<size_t>(image.height) * 3);
  uint8_t* to = result.rgb.data();
  const uint8_t* row = image.rgb.data();
  for (int32_t y = 0; y < image.height; ++y, row += 3 * static_cast<size_t>(image.width)) {
    CountWork(taps.weights.size());
    for (const Taps::Value& value : taps.values) {
      const uint8_t* from = row + 3 * value.first;
      const int16_t* weights = taps.weights.data() + value.weights;
      int32_t red = half, green = half, blue = half;
      for (size_t j = 0; j < value.count; ++j, from += 3) {
        const int32_t weight = weights[j];
        red += from[0] * weight;
        green += from[1] * weight;
        blue += from[2] * weight;
      }
      *to++ = Rounded(red, taps.fraction_bits);
      *to++ = Rounded(green, taps.fraction_bits);
      *to++ = Rounded(blue, taps.fraction_bits);
    }
  }
  return result;
}

Bitmap ResizeColumns(const Bitmap& image, int32_t height, Filter filter) {
  const Taps taps = MakeTaps(image.height, height, filter);
  const int32_t half = taps.fraction_bits == 0 ? 0 : 1 << (taps.fraction_bits - 1);
  const size_t stride = 3 * static_cast<size_t>(image.width);
  Bitmap result{image.width, height, {}};
  result.rgb.resize(stride * static_cast<size_t>(height));
  std::vector<int32_t> sums(stride);
  uint8_t* to = result.rgb.data();
  for (const Taps::Value& value : taps.values) {
    std::ranges::fill(sums, half);
    for (size_t j = 0; j < value.count; ++j) {
      const int32_t weight = taps.weights[value.weights + j];
      CountWork(stride / 8);
      const uint8_t* from = image.rgb.data() + (value.first + j) * stride;
      for (size_t i = 0; i < stride; ++i) sums[i] += from[i] * weight;
    }
    for (size_t i = 0; i < stride; ++i) *to++ = Rounded(sums[i], taps.fraction_bits);
  }
  return result;
}

}  // namespace

Bitmap Resize(const Bitmap& image, int32_t width, int32_t height, Filter filter) {
  if (image.width == width && image.height == height) return image;
  if (image.height == height) return ResizeRows(image, width, filter);
  if (image.width == width) return ResizeColumns(image, height, filter);
  return ResizeColumns(ResizeRows(image, width, filter), height, filter);
}

}  // namespace quire::runner::images
