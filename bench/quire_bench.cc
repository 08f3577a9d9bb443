// quire-bench: how fast a model prefills and decodes here, in the manner of llama-bench, and what share of
// the machine's limits that is. Runs the model and its caches as the engine does, without the engine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/instruction_limit.h"
#include "bench/machine_peaks.h"
#include "cache/hybrid_cache.h"
#include "runner/engine/process/memory_policy.h"
#include "runner/kernels/blas.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/model.h"
#include "runner/weights/model_files.h"
#include "runner/weights/quantized_checkpoint.h"

namespace quire::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> models;
  std::vector<int> prompts = {512}, generate = {128}, batch = {1}, depths = {0}, threads = {0};
  int repeats = 3;
  std::string output = "md";
  api::KvType kv_type = api::kDefaultKvType;
  std::optional<runner::kernels::PanelTarget> target;
  bool blas = false;
  runner::engine::NumaMode numa = runner::engine::NumaMode::kAuto;
};

// One line of the result.
struct Row {
  std::string model, test;
  int threads = 0, sequences = 1, depth = 0;
  std::vector<double> tokens_per_s;
  double roof = 0;  // tokens/s the machine would allow; 0 = not known

  double mean() const {
    double sum = 0;
    for (const double value : tokens_per_s) sum += value;
    return sum / static_cast<double>(tokens_per_s.size());
  }
  double deviation() const {
    double sum = 0;
    for (const double value : tokens_per_s) sum += (value - mean()) * (value - mean());
    return std::sqrt(sum / static_cast<double>(std::max<size_t>(tokens_per_s.size() - 1, 1)));
  }
};

// A model with room for `sequences` sequences of `tokens` tokens.
class Subject {
 public:
  Subject(const std::string& path, api::KvType kv_type, runner::ThreadPool& pool) : pool_(pool) {
    auto files = runner::weights::Open(path);
    if (files) files = runner::weights::ConvertCheckpoint(*std::move(files), 1);
    if (!files) throw std::runtime_error(files.error().message);
    auto model = runner::models::LoadModel(std::move(*files), kv_type);
    if (!model) throw std::runtime_error(model.error().message);
    model_ = std::move(*model);
  }

  const runner::models::Model& model() const { return *model_; }

  void MakeRoom(int32_t sequences, int64_t tokens) {
    sequences_.clear();
    const cache::Layout& layout = model_->cache_layout();
    cache::Capacity capacity{.slots = 2 * sequences};
    capacity.pages.assign(layout.groups.size(),
                          static_cast<int32_t>((tokens / layout.page_tokens + 2) * sequences));
    cache_ = std::move(cache::HybridCache::Create(layout, capacity).value());
    for (int32_t i = 0; i < sequences; ++i) sequences_.push_back(cache_->NewSequence());
  }

  // `tokens` more tokens of each of the first `sequences` sequences, the logits of the last of each.
  void Step(size_t sequences, int32_t tokens) {
    batch_ = {.tokens = {}, .row_begin = {0}, .logit_rows = {}};
    appends_.clear();
    for (size_t i = 0; i < sequences; ++i) {
      for (int32_t t = 0; t < tokens; ++t) {
        batch_.tokens.push_back(
            static_cast<int32_t>(random_() % static_cast<uint32_t>(model_->vocab_size())));
      }
      batch_.row_begin.push_back(static_cast<int32_t>(batch_.tokens.size()));
      batch_.logit_rows.push_back(batch_.row_begin.back() - 1);
      appends_.push_back({.sequence = &sequences_[i], .tokens = tokens});
    }
    logits_.resize(sequences * static_cast<size_t>(model_->vocab_size()));
    auto step = cache_->Begin(appends_);
    if (!step) throw std::runtime_error(step.error().message);
    model_->Forward(batch_, **step, pool_, {logits_});
    (*step)->Commit();
  }

  void Prefill(size_t sequences, int32_t tokens) {
    constexpr int32_t kChunk = 512;
    for (size_t i = 0; i < sequences; ++i) {
      for (int32_t from = 0; from < tokens; from += kChunk) StepOne(i, std::min(kChunk, tokens - from));
    }
  }

 private:
  void StepOne(size_t sequence, int32_t tokens) {
    std::swap(sequences_[0], sequences_[sequence]);
    Step(1, tokens);
    std::swap(sequences_[0], sequences_[sequence]);
  }

  runner::ThreadPool& pool_;
  std::unique_ptr<runner::models::Model> model_;
  std::unique_ptr<cache::HybridCache> cache_;
  std::vector<cache::Sequence> sequences_;
  runner::models::Batch batch_;
  std::vector<cache::Append> appends_;
  std::vector<float> logits_;
  std::minstd_rand random_;
};

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Row Prefill(Subject& subject, const Options& options, int tokens, int depth, const MachinePeaks& peaks) {
  Row row{.model = {}, .test = fmt::format("pp{}", tokens), .depth = depth, .tokens_per_s = {}};
  for (int repeat = -1; repeat < options.repeats; ++repeat) {  // the first warms up
    subject.MakeRoom(1, tokens + depth);
    subject.Prefill(1, depth);
    const auto begin = Clock::now();
    subject.Prefill(1, tokens);
    if (repeat >= 0) row.tokens_per_s.push_back(tokens / Seconds(begin));
  }
  const auto& model = subject.model();
  const double matrices =
      static_cast<double>(model.parameters()) - static_cast<double>(model.vocab_size()) * model.hidden_size();
  if (peaks.int8_gop_per_s > 0) row.roof = peaks.int8_gop_per_s * 1e9 / (2 * matrices);
  return row;
}

Row Decode(Subject& subject, const Options& options, int tokens, int sequences, int depth,
           const MachinePeaks& peaks) {
  Row row{.model = {},
          .test = fmt::format("tg{}", tokens),
          .sequences = sequences,
          .depth = depth,
          .tokens_per_s = {}};
  const auto width = static_cast<size_t>(sequences);
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    subject.MakeRoom(sequences, tokens + depth + 2);
    subject.Prefill(width, std::max(depth, 1));
    subject.Step(width, 1);
    const auto begin = Clock::now();
    for (int t = 0; t < tokens; ++t) subject.Step(width, 1);
    row.tokens_per_s.push_back(tokens * sequences / Seconds(begin));
  }
  const double bytes = static_cast<double>(subject.model().weight_bytes());
  const double by_int8 = 2 * static_cast<double>(subject.model().parameters()) / (peaks.int8_gop_per_s * 1e9);
  const double by_reading = bytes / (peaks.read_gb_per_s * 1e9);
  row.roof = peaks.int8_gop_per_s > 0 ? sequences / std::max(by_reading, sequences * by_int8)
                                      : sequences / by_reading;
  return row;
}

// The rounds of one token; those with one task do not reach other threads.
uint64_t RoundsOfAStep(Subject& subject, runner::ThreadPool& pool) {
  static std::atomic<uint64_t> rounds;  // the pool goes on counting
  pool.CountIn(rounds);
  rounds = 0;
  subject.MakeRoom(1, 1);
  subject.Step(1, 1);
  return rounds;
}

void Print(const Row& row, const std::string& output) {
  if (output == "jsonl") {
    nlohmann::json line{{"model", row.model},           {"test", row.test},
                        {"n_threads", row.threads},     {"n_sequences", row.sequences},
                        {"n_depth", row.depth},         {"avg_ts", row.mean()},
                        {"stddev_ts", row.deviation()}, {"samples_ts", row.tokens_per_s}};
    if (row.roof > 0) line["roofline_fraction"] = row.mean() / row.roof;
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("| {} | {} | {} | {} | {} | {:.1f} ± {:.1f} | {} |\n", row.model, row.threads, row.sequences,
               row.depth, row.test, row.mean(), row.deviation(),
               row.roof > 0 ? fmt::format("{:.0f} %", 100 * row.mean() / row.roof) : "");
  }
  std::fflush(stdout);
}

void Run(const Options& options) {
  if (options.output == "md") {
    fmt::print(
        "| model | threads | sequences | depth | test | tokens/s | of the limit |\n"
        "| --- | --: | --: | --: | --: | --: | --: |\n");
  }
  const std::string refused = runner::engine::SetMemoryPolicy(options.numa);
  if (!refused.empty()) fmt::print(stderr, "quire-bench: {}\n", refused);
  if (options.target && !LimitInstructions(*options.target)) {
    throw std::runtime_error("this machine does not have the instructions of --target");
  }
  if (options.blas && options.target == runner::kernels::PanelTarget::kPortable) {
    fmt::print(stderr, "quire-bench: {}\n", runner::kernels::ChooseBlas());
  }
  for (const int asked : options.threads) {
    const int threads = asked > 0 ? asked : static_cast<int>(std::thread::hardware_concurrency());
    runner::ThreadPool pool(threads);
    pool.PinCaller();
    const MachinePeaks peaks = MeasurePeaks(pool);
    fmt::print(stderr, "{} threads, floats {}, int8 {}: {:.1f} GB/s, {:.0f} int8 GOP/s\n", threads,
               runner::kernels::InstructionSet(), PanelTargetName(), peaks.read_gb_per_s,
               peaks.int8_gop_per_s);
    for (const std::string& path : options.models) {
      const auto begin = Clock::now();
      Subject subject(path, options.kv_type, pool);
      const auto& model = subject.model();
      fmt::print(stderr, "{}: {:.1f} MiB, {:.1f} M parameters, loaded in {:.2f} s\n", path,
                 static_cast<double>(model.weight_bytes()) / 1048576,
                 static_cast<double>(model.parameters()) / 1e6, Seconds(begin));
      // What is laid out at its first use, as experts are, is no part of the figures: peers do that while
      // they load.
      constexpr int32_t kFirst = 512;
      const auto first = Clock::now();
      subject.MakeRoom(1, kFirst);
      subject.Prefill(1, kFirst);
      const double seconds = Seconds(first);
      fmt::print(stderr, "{}: first {} tokens in {:.2f} s, {} rounds of tasks per step of one token\n", path,
                 kFirst, seconds, RoundsOfAStep(subject, pool));
      const auto report = [&](Row row) {
        row.model = std::filesystem::path(path).filename().string();
        row.threads = threads;
        Print(row, options.output);
      };
      for (const int depth : options.depths) {
        for (const int tokens : options.prompts) {
          if (tokens > 0) report(Prefill(subject, options, tokens, depth, peaks));
        }
        for (const int tokens : options.generate) {
          for (const int sequences : options.batch) {
            if (tokens > 0) report(Decode(subject, options, tokens, sequences, depth, peaks));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  CLI::App app{"Measures prefill and decode speed of models on this machine."};
  const auto sizes = [&](const char* name, std::vector<int>& to, const char* help, int least) {
    app.add_option(name, to, help)->delimiter(',')->check(CLI::Range(least, 1 << 20))->capture_default_str();
  };
  app.add_option("-m,--model", options.models, "GGUF file or Hugging Face directory; repeatable")->required();
  sizes("-p,--n-prompt", options.prompts, "prompt tokens; 0 = no prefill", 0);
  sizes("-n,--n-gen", options.generate, "tokens to decode; 0 = none", 0);
  sizes("-b,--sequences", options.batch, "sequences decoded together", 1);
  sizes("-d,--n-depth", options.depths, "context tokens before the test", 0);
  sizes("-t,--threads", options.threads, "compute threads; 0 = one per core", 0);
  app.add_option("-r,--repetitions", options.repeats, "runs per test")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--kv-cache-type", options.kv_type,
                 fmt::format("KV cache type [{}]", quire::api::NameOf(quire::api::kDefaultKvType)))
      ->transform(CLI::CheckedTransformer(std::vector<std::pair<std::string, quire::api::KvType>>(
          quire::api::kKvTypes.begin(), quire::api::kKvTypes.end())));
  app.add_option("--target", options.target,
                 "highest instruction set, for floats, too; portable has SSE4 there")
      ->transform(CLI::CheckedTransformer(quire::bench::kPanelTargets));
  app.add_flag("--blas", options.blas,
               "with portable: OpenBLAS where it helps, as a runner does on such a machine");
  app.add_option("--numa", options.numa,
                 "memory on several NUMA nodes, as quired has it: auto, interleave, replicate or off")
      ->transform(CLI::CheckedTransformer(std::map<std::string, quire::runner::engine::NumaMode>(
          quire::runner::engine::kNumaModes.begin(), quire::runner::engine::kNumaModes.end())));
  app.add_option("-o,--output", options.output, "md or jsonl")
      ->check(CLI::IsMember({"md", "jsonl"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    quire::bench::Run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire-bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
