#include "runner/kernels/self_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string_view>

#include "runner/kernels/batch_invariance.h"
#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/quantized_activations.h"
#include "runner/kernels/thread_pool.h"
#include "runner/weights/block_formats.h"

namespace quire::runner::kernels {
namespace {

using weights::DataType;

constexpr int64_t kColumns = 512;  // whole blocks of every type
constexpr int64_t kOutputs = 19;   // two panels, one of them not full
constexpr int64_t kRowCount = 14;  // two groups of activations

struct NamedTarget {
  PanelTarget target;
  std::string_view name;
};
constexpr NamedTarget kPanelTargets[] = {  // AMX first
    {PanelTarget::kAmx, "AMX-INT8"},       {PanelTarget::kAvx512, "AVX-512 VNNI"},
    {PanelTarget::kAvxVnni, "AVX-VNNI"},   {PanelTarget::kAvx2, "AVX2"},
    {PanelTarget::kNeonI8mm, "NEON I8MM"}, {PanelTarget::kNeonDot, "NEON DotProd"},
    {PanelTarget::kNeon, "NEON"}};

// Random weights of finite value: without the bit that lets a float16 or an exponent reach infinity.
std::vector<std::byte> FiniteWeights(DataType type, int64_t rows, std::mt19937& random) {
  std::vector<std::byte> bytes(weights::RowBytes(type, kColumns) * static_cast<size_t>(rows));
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random() & 0xBF); });
  return bytes;
}

std::vector<float> RandomActivations(std::mt19937& random) {
  std::vector<float> x(static_cast<size_t>(kRowCount * kColumns));
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::ranges::generate(x, [&] { return uniform(random); });
  return x;
}

template <class T>
bool SameBits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<float> Multiply(ThreadPool& pool, std::span<const float> x, const Matrix& matrix) {
  std::vector<float> y(static_cast<size_t>(kRowCount * kOutputs));
  QuantizedActivations scratch;
  MatMul(pool, {x, kRowCount, scratch}, matrix, y);
  return y;
}

// Names of the targets whose products differ from portable ones.
std::vector<std::string_view> DifferingTargets(ThreadPool& pool, DataType type,
                                               std::span<const NamedTarget> targets, std::mt19937& random) {
  const std::vector<std::byte> stored = FiniteWeights(type, kOutputs, random);
  std::vector<std::byte> panels(PanelCount(kOutputs) * PanelBytes(PanelFormatOf(type), kColumns));
  FillPanels(pool, stored.data(), type, kOutputs, kColumns, panels.data());
  const Matrix matrix{stored.data(), type, kOutputs, kColumns, panels.data()};
  const std::vector<float> x = RandomActivations(random);
  LimitPanelTarget(PanelTarget::kPortable);
  const std::vector<float> portable = Multiply(pool, x, matrix);
  std::vector<std::string_view> differing;
  for (const NamedTarget& target : targets) {
    LimitPanelTarget(target.target);
    if (!SameBits<float>(portable, Multiply(pool, x, matrix))) differing.push_back(target.name);
  }
  return differing;
}

KernelCheck CheckProducts(ThreadPool& pool, std::mt19937& random) {
  std::vector<NamedTarget> targets;
  std::vector<std::string_view> names;
  for (const NamedTarget& target : kPanelTargets) {
    LimitPanelTarget(target.target);
    if (BestPanelTarget() != target.target) continue;  // not this CPU
    targets.push_back(target);
    names.push_back(target.name);
  }
  int types = 0;
  std::string failure;
  for (const weights::BlockFormat& format : weights::kBlockFormats) {
    if (!HasPanels(format.type)) continue;
    ++types;
    for (const std::string_view name : DifferingTargets(pool, format.type, targets, random)) {
      failure += fmt::format("{}{} with {}", failure.empty() ? "" : ", ", format.name, name);
    }
  }
  LimitPanelTarget(kNoPanelLimit);
  const std::string with = names.empty() ? "portable code only" : fmt::format("{}", fmt::join(names, ", "));
  return {fmt::format("int8 products of {} types ({})", types, with), std::move(failure)};
}

// Calls `check` with each instruction set of Highway that this CPU has.
void ForEachTarget(const std::function<void(const char* name)>& check) {
  const int64_t usable = (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_NEON, HWY_SCALAR}) {
    if ((usable & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// `compute` gives bytes that every instruction set computes alike.
KernelCheck CompareTargets(std::string_view what, const std::function<std::vector<std::byte>()>& compute) {
  struct Computed {
    std::string_view name;
    std::vector<std::byte> bytes;
  };
  std::vector<Computed> all;
  ForEachTarget([&](const char* name) { all.push_back({name, compute()}); });
  std::vector<std::string_view> names, differing;
  for (const Computed& one : all) {  // the last one is scalar, or the only one
    names.push_back(one.name);
    if (one.bytes != all.back().bytes) differing.push_back(one.name);
  }
  return {fmt::format("{} ({})", what, fmt::join(names, ", ")),
          fmt::format("{}", fmt::join(differing, ", "))};
}

void Append(std::vector<std::byte>& to, const void* from, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + bytes);
}

KernelCheck CheckActivations(ThreadPool& pool, std::mt19937& random) {
  const std::vector<float> x = RandomActivations(random);
  return CompareTargets("int8 activations", [&] {
    QuantizedActivations rows;
    rows.Quantize(pool, x, kRowCount, kColumns);
    std::vector<std::byte> bytes;
    Append(bytes, rows.quants(), x.size());
    Append(bytes, rows.scale(), x.size() / kKBlock * sizeof(float));
    return bytes;
  });
}

KernelCheck CheckEmbedding(std::mt19937& random) {
  const int32_t ids[] = {0, 2, 1};
  std::vector<std::vector<std::byte>> tables;
  tables.reserve(std::size(weights::kBlockFormats));
  for (const weights::BlockFormat& format : weights::kBlockFormats) {
    tables.push_back(FiniteWeights(format.type, std::ssize(ids), random));
  }
  const std::string what = fmt::format("dequantization of {} types", tables.size());
  return CompareTargets(what, [&] {
    std::vector<float> rows(std::size(ids) * kColumns);
    std::vector<std::byte> bytes;
    for (size_t i = 0; i < tables.size(); ++i) {
      const DataType type = weights::kBlockFormats[i].type;
      EmbeddingRows({tables[i].data(), type, std::ssize(ids), kColumns}, ids, rows);
      Append(bytes, rows.data(), rows.size() * sizeof(float));
    }
    return bytes;
  });
}

KernelCheck CheckRows() {
  std::vector<std::string_view> names, differing;
  ForEachTarget([&](const char* name) {
    names.emplace_back(name);
    if (!CheckBatchInvariance()) differing.emplace_back(name);
  });
  return {fmt::format("batch invariance ({})", fmt::join(names, ", ")),
          fmt::format("{}", fmt::join(differing, ", "))};
}

}  // namespace

std::vector<KernelCheck> CheckKernels() {
  std::mt19937 random(1);
  ThreadPool pool(1);
  std::vector<KernelCheck> checks;
  checks.push_back(CheckProducts(pool, random));
  checks.push_back(CheckActivations(pool, random));
  checks.push_back(CheckEmbedding(random));
  checks.push_back(CheckRows());
  return checks;
}

bool TilesAgree() {
  if (BestPanelTarget() != PanelTarget::kAmx) return true;
  std::mt19937 random(1);
  ThreadPool pool(1);
  const bool agree = std::ranges::all_of(weights::kBlockFormats, [&](const weights::BlockFormat& format) {
    return !HasPanels(format.type) ||
           DifferingTargets(pool, format.type, std::span(kPanelTargets).first(1), random).empty();
  });
  LimitPanelTarget(agree ? kNoPanelLimit : PanelTarget::kAvx512);
  return agree;
}

}  // namespace quire::runner::kernels
