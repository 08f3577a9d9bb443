// attention_bench: attention of some new tokens behind others, alone: the least time of a layer, GFLOP/s, and
// with one thread the share of what the machine's float32 multiply-adds allow. The time of one thread is its
// CPU time, so that other work on the machine matters little. With --select also the choice of keys by an
// indexer, and attention to those chosen.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/instruction_limit.h"
#include "bench/machine_peaks.h"
#include "runner/kernels/attention.h"
#include "runner/kernels/selection.h"
#include "runner/kernels/thread_pool.h"

namespace quire::bench {
namespace {

using cache::ElementType;
using cache::Position;

struct Options {
  int threads = 1, heads = 16, kv_heads = 8, dim = 64, depth = 4000, repeats = 20;
  int latent = 0, select = 0, index_heads = 16, index_dim = 128, stride = 1;
  std::vector<int> tokens = {1, 43, 512};
  ElementType type = ElementType::kF16;
  std::optional<runner::kernels::PanelTarget> target;
};

const std::map<std::string, ElementType> kElementTypes = {{"f32", ElementType::kF32},
                                                          {"f16", ElementType::kF16},
                                                          {"bf16", ElementType::kBF16},
                                                          {"q8_0", ElementType::kQ8_0},
                                                          {"i16", ElementType::kI16}};

// One sequence whose step has the tokens from `offset` on.
class OneSequence final : public cache::StepView {
 public:
  OneSequence(const cache::Layout& layout, Position end) : views_(layout.groups.size()) {
    for (size_t group = 0; group < views_.size(); ++group) {
      for (Position first = 0; first < end; first += layout.page_tokens) {
        const Position tokens = std::min<Position>(end - first, layout.page_tokens);
        memory_.emplace_back(cache::PageBytes(layout, group));
        views_[group].push_back(
            {.base = memory_.back().data(), .first = first, .tokens = static_cast<int32_t>(tokens)});
      }
    }
  }
  void SetStep(Position offset, int32_t tokens) { offset_ = offset, tokens_ = tokens; }

  size_t sequences() const override { return 1; }
  Position offset(size_t) const override { return offset_; }
  int32_t new_tokens(size_t) const override { return tokens_; }
  std::span<const cache::PageView> Pages(size_t, size_t group) const override { return views_[group]; }
  std::byte* Slot(size_t) const override { return nullptr; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::vector<cache::PageView>> views_;  // [groups]
  Position offset_ = 0;
  int32_t tokens_ = 0;
};

std::vector<float> RandomNumbers(size_t count, float size) {
  std::minstd_rand random;
  std::uniform_real_distribution<float> uniform(-size, size);
  std::vector<float> numbers(count);
  std::ranges::generate(numbers, [&] { return uniform(random); });
  return numbers;
}

// The time of this thread if it works alone.
double Now(bool alone) {
  if (!alone)
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Call>
double LeastTime(const Options& options, const runner::ThreadPool& pool, const Call& call) {
  double best = 1e9;
  for (int i = 0; i <= options.repeats; ++i) {
    const double begin = Now(pool.threads() == 1);
    call();
    best = std::min(best, Now(pool.threads() == 1) - begin);
  }
  return best;
}

// Choosing keys, and attention to them: milliseconds. Index keys are group 1.
std::string MeasureSelection(const Options& options, runner::ThreadPool& pool,
                             const runner::kernels::AttentionLayer& at, int tokens, std::span<const float> q,
                             std::span<float> out) {
  runner::kernels::AttentionLayer index = at;
  index.group = 1;
  const auto dim = static_cast<size_t>(options.index_dim), heads = static_cast<size_t>(options.index_heads);
  const std::vector<float> keys = RandomNumbers(dim * 1009, 1);
  for (Position p = options.stride - 1; p < options.depth + tokens; p += options.stride) {
    runner::kernels::WriteRow(index, 0, p, std::span(keys).subspan(static_cast<size_t>(p % 1009) * dim, dim));
  }
  const std::vector<float> queries = RandomNumbers(static_cast<size_t>(tokens) * heads * dim, 1);
  const std::vector<float> weights = RandomNumbers(static_cast<size_t>(tokens) * heads, 1);
  const runner::kernels::IndexRule rule{
      .heads = options.index_heads, .best = options.select / options.stride, .expand = options.stride > 1};
  runner::kernels::Selection selection;
  const double choice = LeastTime(
      options, pool, [&] { runner::kernels::SelectKeys(pool, index, rule, queries, weights, &selection); });
  const runner::kernels::SelectedKeys source{.at = at, .chosen = &selection};
  const double attention = LeastTime(options, pool, [&] {
    runner::kernels::SelectedAttention(pool, {&source, 1}, options.heads, {.scale = 0.125F}, q, out);
  });
  return fmt::format(" {:.3f} | {:.3f} |", choice * 1e3, attention * 1e3);
}

void Measure(const Options& options, int tokens, runner::ThreadPool& pool, double peak) {
  cache::Layout layout{.groups = {{.layers = 1,
                                   .kv_heads = options.kv_heads,
                                   .head_dim = options.dim,
                                   .element = options.type,
                                   .latent = options.latent}}};
  if (options.select > 0) {
    layout.groups.push_back({.layers = 1,
                             .kv_heads = 1,
                             .head_dim = options.index_dim,
                             .latent = options.index_dim,
                             .stride = options.stride});
  }
  const int end = options.depth + tokens;
  OneSequence step(layout, end);
  const auto at = [&](const std::vector<int32_t>& rows) {
    return runner::kernels::AttentionLayer{.layout = &layout, .step = &step, .row_begin = rows};
  };
  const std::vector<int32_t> all = {0, end}, rows = {0, tokens};
  const auto width = static_cast<size_t>(options.kv_heads) * static_cast<size_t>(options.dim);
  step.SetStep(0, end);
  const std::vector<float> kept = RandomNumbers(static_cast<size_t>(end) * width, 1);
  runner::kernels::StoreKeyValue(pool, at(all), kept, options.latent > 0 ? std::span<const float>() : kept);
  step.SetStep(options.depth, tokens);
  const auto queries =
      static_cast<size_t>(tokens) * static_cast<size_t>(options.heads) * static_cast<size_t>(options.dim);
  const std::vector<float> q = RandomNumbers(queries, 0.3F);
  const auto value = static_cast<size_t>(layout.groups[0].value_dim());
  std::vector<float> out(queries / static_cast<size_t>(options.dim) * value);
  runner::kernels::AttentionPlan plan;
  plan.Prepare(rows, options.heads, layout.groups[0], pool.threads());
  const double best = LeastTime(
      options, pool, [&] { runner::kernels::Attention(pool, at(rows), plan, {.scale = 0.125F}, q, out); });
  const double keys = options.depth + (tokens + 1) / 2.0;
  const double gflop = 2e-9 * static_cast<double>(queries + out.size()) * keys / best;
  fmt::print("| {} | {:.3f} | {:.1f} | {} |{}\n", tokens, best * 1e3, gflop,
             peak > 0 ? fmt::format("{:.0f} %", 100 * gflop / peak) : "",
             options.select > 0 ? MeasureSelection(options, pool, at(rows), tokens, q, out) : "");
}

void Run(const Options& options) {
  runner::ThreadPool pool(options.threads);
  const bool has_peak = options.threads == 1;
  const double peak = has_peak ? MeasurePeaks(pool).float_gflop_per_s : 0;
  fmt::print(
      "{} heads of {}, {} KV heads, behind {} tokens, {} threads\n\n"
      "| tokens | ms | GFLOP/s | of the limit |{}\n| --: | --: | --: | --: |{}\n",
      options.heads, options.dim, options.kv_heads, options.depth, options.threads,
      options.select > 0 ? " choice, ms | chosen, ms |" : "", options.select > 0 ? " --: | --: |" : "");
  for (const int tokens : options.tokens) Measure(options, tokens, pool, peak);
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  CLI::App app{"Measures attention over cache pages."};
  app.add_option("-t,--threads", options.threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--heads", options.heads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--kv-heads", options.kv_heads, "a divisor of --heads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--dim", options.dim, "of a head, a multiple of 32")
      ->check(CLI::Range(32, 640))
      ->capture_default_str();
  app.add_option("-d,--depth", options.depth, "tokens before the new ones")
      ->check(CLI::Range(0, 1 << 18))
      ->capture_default_str();
  app.add_option("-p,--tokens", options.tokens, "new tokens")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--latent", options.latent, "numbers of a key that are its value too, with one KV head")
      ->check(CLI::Range(0, 512))
      ->capture_default_str();
  app.add_option("--select", options.select, "keys that a row sees at most; 0 = all")
      ->check(CLI::Range(0, 1 << 18))
      ->capture_default_str();
  app.add_option("--index-heads", options.index_heads)->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--index-dim", options.index_dim)->check(CLI::Range(1, 512))->capture_default_str();
  app.add_option("--stride", options.stride, "tokens of an index key")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--kv-cache-type", options.type)
      ->transform(CLI::CheckedTransformer(quire::bench::kElementTypes));
  app.add_option("--target", options.target, "highest instruction set")
      ->transform(CLI::CheckedTransformer(quire::bench::kPanelTargets));
  app.add_option("-r,--repetitions", options.repeats, "the best one counts")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.heads % options.kv_heads != 0 || options.dim % 32 != 0 ||
      (options.latent > 0 && options.kv_heads != 1)) {
    fmt::print(stderr, "attention_bench: --heads must be a multiple of --kv-heads, --dim of 32\n");
    return 2;
  }
  if (options.target && !quire::bench::LimitInstructions(*options.target)) {
    fmt::print(stderr, "attention_bench: this machine does not have the instructions of --target\n");
    return 1;
  }
  quire::bench::Run(options);
  return 0;
}
