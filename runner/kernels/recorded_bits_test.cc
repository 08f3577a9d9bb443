// Kernels give the bits that were recorded, whatever the vector width and the architecture.
#include "runner/kernels/testing/recorded_bits.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/kernels/encoder_ops.h"
#include "runner/kernels/experts.h"
#include "runner/kernels/float_panels.h"
#include "runner/kernels/gated_delta.h"
#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/state_space.h"
#include "runner/kernels/testing/random_matrix.h"

namespace quire::runner::kernels {
namespace {

using test::BitHash;
using test::ExpectBits;
using test::Random;
using test::TestMatrix;

constexpr size_t kRecordedRows = 3, kRecordedWidth = 83;  // no whole vectors of any width

TEST(RecordedBits, Norms) {
  ThreadPool pool(1);
  ExpectBits("4697fc0070eeddff", [&](BitHash& hash) {
    Random random(1);
    for (const size_t width : {1, 5, 16, 83, 256}) {
      const std::vector<float> x = random.Floats(kRecordedRows * width), weight = random.Floats(width);
      std::vector<float> y(x.size());
      RmsNorm(pool, x, weight, 1e-5F, y);
      hash.Add(y);
      LayerNorm(pool, x, weight, weight, 1e-5F, y);
      hash.Add(y);
    }
  });
}

TEST(RecordedBits, Activations) {
  ThreadPool pool(1);
  ExpectBits("8d1bbd3e897f3945", [&](BitHash& hash) {
    Random random(2);
    std::vector<float> x = random.Floats(kRecordedRows * kRecordedWidth);
    const std::vector<float> up = random.Floats(x.size());
    Scale(pool, 9, x);
    const auto add = [&](auto change) {
      std::vector<float> y = x;
      change(y);
      hash.Add(y);
    };
    add([&](std::vector<float>& y) { SiluMul(pool, up, y); });
    add([&](std::vector<float>& y) { GeluMul(pool, up, y); });
    add([&](std::vector<float>& y) { GeluErf(pool, y); });
    add([&](std::vector<float>& y) { ClampedSwiglu(pool, {.limit = 7}, up, y); });
    add([&](std::vector<float>& y) { Xielu(pool, {0.8F, 0.7F, 0.5F, -1e-6F}, y); });
    add([&](std::vector<float>& y) { SigmoidMul(pool, up, y); });
    add([&](std::vector<float>& y) { SigmoidMulRows(pool, std::span(up).first(kRecordedRows), y); });
    add([&](std::vector<float>& y) { SoftCap(pool, 3, y); });
    add([&](std::vector<float>& y) { MulAdd(0.3F, up, y); });
  });
}

TEST(RecordedBits, Rope) {
  ThreadPool pool(1);
  ExpectBits("8e814bbec708f94d", [&](BitHash& hash) {
    const int64_t positions[] = {0, 17, 131'071};
    std::vector<float> frequencies, cos(3 * 11), sin(3 * 11), x = Random(3).Floats(3 * 2 * 24);
    for (int i = 0; i < 11; ++i) frequencies.push_back(1.0F / static_cast<float>(1 + i * i * i));
    RopeTable(pool, positions, frequencies, cos, sin, 1.1F);
    Rope(pool, cos, sin, 11, 24, 3, x);
    hash.Add(cos);
    hash.Add(sin);
    hash.Add(x);
  });
}

TEST(RecordedBits, AttentionBothWays) {
  ThreadPool pool(1);
  ExpectBits("a60b3bd39033b0c8", [&](BitHash& hash) {
    Random random(4);
    for (const int32_t dim : {7, 16, 40}) {
      const int32_t row_begin[] = {0, 70, 73};
      const auto floats = static_cast<size_t>(73 * 2 * dim);
      const std::vector<float> q = random.Floats(floats), k = random.Floats(floats),
                               v = random.Floats(floats);
      std::vector<float> out(floats);
      const TwoWayAttention shape{
          .row_begin = row_begin, .heads = 2, .kv_heads = 2, .head_dim = dim, .scale = 1.5F};
      AttendBothWays(pool, shape, q, k, v, out);
      hash.Add(out);
    }
  });
}

// Types after MXFP4 in the table had no panels when these bits were recorded.
TEST(RecordedBits, Products) {
  ThreadPool pool(1);
  ExpectBits("c76c39db1fae5b04", [&](BitHash& hash) {
    uint32_t seed = 5;
    for (const weights::DataType type : test::kTypes) {
      const int64_t in = weights::BlockElements(type) == 1 ? 83 : 512, out = 21, rows = 9;
      const TestMatrix stored(type, out, in, ++seed);
      const std::vector<float> x = Random(++seed).Floats(static_cast<size_t>(rows * in));
      std::vector<float> y(static_cast<size_t>(rows * out));
      MatMul(pool, x, rows, stored.view(), y);
      hash.Add(y);
      std::vector<std::byte> panels;
      if (IsFloat(type)) {
        panels.resize(FloatPanelBytes(type, out, in));
        FillFloatPanels(pool, stored.view().data, type, out, in, panels.data());
      } else if (HasPanels(type) && type <= weights::DataType::kMXFP4) {
        panels.resize(PanelCount(out) * PanelBytes(PanelFormatOf(type), in));
        FillPanels(pool, stored.view().data, type, out, in, panels.data());
      } else {
        continue;
      }
      Matrix packed = stored.view();
      packed.panels = panels.data();
      QuantizedActivations scratch;
      MatMul(pool, {x, rows, scratch}, packed, y);
      hash.Add(y);
    }
  });
}

TEST(RecordedBits, ProductsWithCodebooks) {
  ThreadPool pool(1);
  ExpectBits("2fa094d47d87bb9c", [&](BitHash& hash) {
    uint32_t seed = 50;
    for (const weights::DataType type : test::kTypes) {
      if (!HasPanels(type) || type <= weights::DataType::kMXFP4) continue;
      constexpr int64_t kIn = 512, kOut = 21, kCount = 9;
      const TestMatrix stored(type, kOut, kIn, ++seed);
      std::vector<std::byte> panels(PanelCount(kOut) * PanelBytes(PanelFormatOf(type), kIn));
      FillPanels(pool, stored.view().data, type, kOut, kIn, panels.data());
      Matrix packed = stored.view();
      packed.panels = panels.data();
      std::vector<float> y(kCount * kOut);
      const std::vector<float> x = Random(++seed).Floats(kCount * kIn);
      QuantizedActivations scratch;
      MatMul(pool, {x, kCount, scratch}, packed, y);
      hash.Add(y);
    }
  });
}

TEST(RecordedBits, Gates) {
  ThreadPool pool(1);
  ExpectBits("d4db3de6e858b7d0", [&](BitHash& hash) {
    Random random(6);
    std::vector<float> a = random.Floats(60), b = random.Floats(60), rate = random.Floats(4),
                       bias = random.Floats(4);
    DeltaGates(rate, bias, a, b);
    hash.Add(a);
    hash.Add(b);
    SsdGates(pool, {.bias = bias, .rate = rate, .low = 0.01F, .high = 2}, a, b);
    hash.Add(a);
    hash.Add(b);
    for (const bool norm_first : {false, true}) {
      std::vector<float> x = random.Floats(2 * 60);
      const std::vector<float> weight = random.Floats(60), gate = random.Floats(2 * 60);
      GatedNormShape shape;
      shape.group = 20;
      shape.eps = 1e-5F;
      shape.norm_first = norm_first;
      GatedRmsNorm(pool, shape, weight, gate, x);
      hash.Add(x);
    }
    Routing routing;
    std::vector<float> scores = random.Floats(3 * 8);
    RoutingRule rule;
    rule.experts = 8;
    rule.chosen = 3;
    Route(pool, rule, scores, &routing);
    hash.Add(routing.weight);
  });
}

}  // namespace
}  // namespace quire::runner::kernels
