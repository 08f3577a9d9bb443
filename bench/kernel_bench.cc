// kernel_bench: products with weights of every type, alone, by number of rows: GOP/s, the share of what the
// machine's int8 instructions allow (of float weights: its float32 ones), and GB/s of weights. Weights are
// larger than the caches unless --out says otherwise.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/instruction_limit.h"
#include "bench/machine_peaks.h"
#include "runner/kernels/float_panels.h"
#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/panels.h"
#include "runner/kernels/testing/open_blas.h"
#include "runner/kernels/thread_pool.h"
#include "runner/weights/block_formats.h"
#include "runner/weights/testing/half_offsets.h"

namespace quire::bench {
namespace {

using runner::kernels::Matrix;
using runner::weights::DataType;

struct Options {
  int threads = 0, in = 1024, out = 65536, repeats = 5;
  std::vector<int> rows = {1, 4, 16, 64, 256};
  std::vector<std::string> types;  // empty: all
  std::optional<runner::kernels::PanelTarget> target;
  bool open_blas = false;
};

// Random numbers of [1, 2), with either sign.
std::vector<std::byte> RandomFloats(DataType type, int64_t count) {
  const size_t width = type == DataType::kF32 ? 4 : 2;
  std::vector<std::byte> bytes(static_cast<size_t>(count) * width);
  std::minstd_rand random;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
  const std::byte exponent{static_cast<uint8_t>(type == DataType::kF16 ? 0x3c : 0x3f)};
  const std::byte free{static_cast<uint8_t>(type == DataType::kF16 ? 0x83 : 0x80)};
  for (size_t at = width - 1; at < bytes.size(); at += width) {
    bytes[at] = (bytes[at] & free) | exponent;
    if (type != DataType::kF16) bytes[at - 1] |= std::byte{0x80};
  }
  return bytes;
}

// Random blocks whose scales are ordinary numbers.
std::vector<std::byte> RandomWeights(DataType type, int64_t out, int64_t in) {
  const runner::weights::BlockFormat& format = runner::weights::FormatOf(type);
  std::vector<std::byte> bytes(runner::weights::RowBytes(type, in) * static_cast<size_t>(out));
  std::minstd_rand random;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
  if (runner::kernels::IsFloat(type)) return RandomFloats(type, out * in);
  const auto block = static_cast<size_t>(format.bytes);
  for (size_t at = 0; at + block <= bytes.size(); at += block) {
    if (format.quants.exponent) bytes[at] = std::byte{127};
    runner::weights::test::SetHalves(type, 0x3c00, bytes.data() + at);  // 1
  }
  return bytes;
}

double BestSeconds(int repeats, const auto& fn) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    fn();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

size_t PanelBytes(const Options& options, DataType type) {
  if (runner::kernels::IsFloat(type)) {
    return runner::kernels::FloatPanelBytes(type, options.out, options.in);
  }
  return runner::kernels::PanelCount(options.out) *
         runner::kernels::PanelBytes(runner::kernels::PanelFormatOf(type), options.in);
}

void Measure(const Options& options, DataType type, runner::ThreadPool& pool, const MachinePeaks& peaks) {
  const bool floats = runner::kernels::IsFloat(type);
  const double peak = floats ? peaks.float_gflop_per_s : peaks.int8_gop_per_s;
  const std::vector<std::byte> weights = RandomWeights(type, options.out, options.in);
  std::vector<std::byte> panels(PanelBytes(options, type));
  const auto lay_out = floats ? runner::kernels::FillFloatPanels : runner::kernels::FillPanels;
  const double fill =
      BestSeconds(1, [&] { lay_out(pool, weights.data(), type, options.out, options.in, panels.data()); });
  const Matrix matrix{weights.data(), type, options.out, options.in, panels.data()};
  std::minstd_rand random;
  for (const int rows : options.rows) {
    std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(options.in));
    for (float& value : x) value = static_cast<float>(random() % 2001) / 1000 - 1;
    std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(options.out));
    runner::kernels::QuantizedActivations scratch;
    const runner::kernels::MatMulInput input(x, rows, scratch);  // quantized by the first run
    const double seconds =
        BestSeconds(options.repeats + 1, [&] { runner::kernels::MatMul(pool, input, matrix, y); });
    const double gop = 2e-9 * rows * options.in * options.out / seconds;
    fmt::print("| {} | {} | {:.0f} | {} | {:.1f} | {:.2f} |\n", runner::weights::Name(type), rows, gop,
               peak > 0 ? fmt::format("{:.0f} %", 100 * gop / peak) : "",
               static_cast<double>(panels.size()) / seconds / 1e9,
               static_cast<double>(weights.size()) / fill / 1e9);
  }
}

// The same products by OpenBLAS, of the weights as float32; its library is single-threaded, on parts of the
// outputs.
void MeasureOpenBlas(const Options& options, DataType type, runner::ThreadPool& pool, double peak) {
  const auto blas = runner::kernels::test::OpenBlas::Load();
  if (!blas) {
    fmt::print(stderr, "kernel_bench: libopenblas0-pthread is not installed\n");
    return;
  }
  const std::vector<std::byte> stored = RandomWeights(type, options.out, options.in);
  std::vector<float> weights(static_cast<size_t>(options.out) * static_cast<size_t>(options.in));
  runner::weights::Dequantize(type, stored.data(), static_cast<int64_t>(weights.size()), weights.data());
  const int64_t parts = pool.threads(), part = (options.out + parts - 1) / parts;
  for (const int rows : options.rows) {
    const std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(options.in), 0.5F);
    std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(options.out));
    const double seconds = BestSeconds(options.repeats + 1, [&] {
      pool.ParallelFor(static_cast<size_t>(parts), [&](size_t i) {
        const int64_t begin = static_cast<int64_t>(i) * part,
                      end = std::min<int64_t>(begin + part, options.out);
        if (begin >= end) return;
        blas->Multiply(x.data(), rows, weights.data() + begin * options.in, end - begin, options.in,
                       y.data() + begin, options.out);
      });
    });
    const double gop = 2e-9 * rows * options.in * options.out / seconds;
    fmt::print("| {} by OpenBLAS | {} | {:.0f} | {} | | |\n", runner::weights::Name(type), rows, gop,
               peak > 0 ? fmt::format("{:.0f} %", 100 * gop / peak) : "");
  }
}

void Run(const Options& options) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  runner::ThreadPool pool(options.threads > 0 ? options.threads : cores);
  const MachinePeaks peaks = MeasurePeaks(pool);
  fmt::print(
      "{} threads, floats {}, int8 {}: {:.1f} GB/s, {:.0f} int8 GOP/s, {:.0f} float32 GFLOP/s\n\n| type | "
      "rows | GOP/s | of the "
      "limit | GB/s | laid out, "
      "GB/s |\n"
      "| --- | --: | --: | --: | --: | --: |\n",
      pool.threads(), runner::kernels::InstructionSet(), PanelTargetName(), peaks.read_gb_per_s,
      peaks.int8_gop_per_s, peaks.float_gflop_per_s);
  for (const runner::weights::BlockFormat& format : runner::weights::kBlockFormats) {
    if (!options.types.empty() && !std::ranges::count(options.types, runner::weights::Name(format.type))) {
      continue;
    }
    Measure(options, format.type, pool, peaks);
    if (options.open_blas && (format.type == DataType::kF32 || !options.types.empty())) {
      MeasureOpenBlas(options, format.type, pool, peaks.float_gflop_per_s);
    }
  }
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  CLI::App app{"Measures matrix multiplication with quantized weights."};
  app.add_option("-t,--threads", options.threads, "0 = one per core")->check(CLI::Range(0, 1024));
  app.add_option("--in", options.in, "inputs, a multiple of 256")
      ->check(CLI::Range(256, 1 << 16))
      ->capture_default_str();
  app.add_option("--out", options.out, "outputs")->check(CLI::Range(16, 1 << 20))->capture_default_str();
  app.add_option("--rows", options.rows, "activation rows")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--types", options.types, "weight types (Q8_0, BF16, ...); default: all")->delimiter(',');
  app.add_option("--target", options.target,
                 "highest instruction set, for floats, too; portable has SSE4 there")
      ->transform(CLI::CheckedTransformer(quire::bench::kPanelTargets));
  app.add_option_function<std::string>(
         "--peer", [&](const std::string&) { options.open_blas = true; },
         "who else multiplies, in float32: F32, or the types of --types")
      ->check(CLI::IsMember({"openblas"}));
  app.add_option("-r,--repetitions", options.repeats, "repetitions; the best one counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.in % 256 != 0) {
    fmt::print(stderr, "kernel_bench: --in must be a multiple of 256\n");
    return 2;
  }
  if (options.target && !quire::bench::LimitInstructions(*options.target)) {
    fmt::print(stderr, "kernel_bench: this machine does not have the instructions of --target\n");
    return 1;
  }
  quire::bench::Run(options);
  return 0;
}
