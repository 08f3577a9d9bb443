// quire-golden: does a checkpoint compute what its reference computed?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/encoder.h"
#include "runner/weights/model_files.h"
#include "tests/golden/compare.h"
#include "tests/golden/decoder_vectors.h"
#include "tests/golden/draft_golden.h"
#include "tests/golden/draft_verification.h"
#include "tests/golden/encoder_golden.h"
#include "tests/golden/fingerprint.h"
#include "tests/golden/vision_golden.h"
#include "tests/golden/vision_stages.h"

namespace quire::runner::golden {
namespace {

constexpr int kExitPass = 0, kExitFail = 1, kExitUnusable = 2;

struct Options {
  std::string model;
  std::string golden;
  std::string quant;
  std::string target;
  std::string projector;
  std::string quantize;
  int threads = 0;
  bool fingerprint = false;
  bool verify_drafts = false;
  api::KvType kv_type = api::KvType::kF32;
  CompareOptions compare;
};

int Unusable(const std::string& reason) {
  std::fputs(fmt::format("quire-golden: {}\n", reason).c_str(), stderr);
  return kExitUnusable;
}

int Report(const Options& options, const Comparison& result) {
  for (const std::string& line : result.lines) fmt::print("{}\n", line);
  fmt::print("{}\n", result.Verdict(options.compare.tolerance));
  return result.pass(options.compare.tolerance) ? kExitPass : kExitFail;
}

// The model that a draft model's golden names, beside the golden's directory.
std::filesystem::path TargetBeside(const Options& options, const std::string& name) {
  const auto golden = std::filesystem::absolute(options.golden).lexically_normal();
  return (golden.has_filename() ? golden : golden.parent_path()).parent_path() / name;
}

int RunDrafts(const Options& options, ThreadPool& pool) {
  const auto golden = ReadDraftGolden(options.golden);
  if (!golden) return Unusable(golden.error().message);
  const auto target =
      options.target.empty() ? TargetBeside(options, golden->target) : std::filesystem::path(options.target);
  const auto result = CompareDrafts(options.model, target, *golden, pool);
  if (!result) return Unusable(result.error().message);
  return Report(options, *result);
}

int RunVerifyDrafts(const Options& options, ThreadPool& pool) {
  const auto prompts = ReadDraftPrompts(options.golden);
  if (!prompts) return Unusable(prompts.error().message);
  std::filesystem::path target = options.target, draft = options.model;
  if (target.empty() && !prompts->target.empty()) target = TargetBeside(options, prompts->target);
  if (target.empty()) target = std::exchange(draft, {});
  auto run = OpenTarget(target, *prompts, pool);
  if (!run) return Unusable(run.error().message);
  const auto drafter = OpenDrafter(draft, target, *run);
  if (!drafter) return Unusable(drafter.error().message);
  const DraftVerification result = VerifyDrafts(*run, drafter->get(), *prompts, pool);
  for (const std::string& line : result.lines) fmt::print("{}\n", line);
  fmt::print("{}\n", result.Verdict());
  return result.bit_identical ? kExitPass : kExitFail;
}

// A run of the model with room for every golden prompt; null after Unusable has said why.
std::optional<GoldenRun> OpenRun(const Options& options, const GoldenFile& golden, ThreadPool& pool) {
  size_t longest = 0;
  for (const GoldenPrompt& prompt : golden.prompts) {
    longest = std::max(longest, prompt.ids.size() + prompt.greedy.size());
  }
  auto run = GoldenRun::Open(options.model, pool, 1, static_cast<int64_t>(longest), options.kv_type);
  if (!run) {
    Unusable(run.error().message);
    return std::nullopt;
  }
  if (run->model().vocab_size() != golden.vocab) {
    Unusable(fmt::format("{} has {} tokens, but {} was made with {}", options.model,
                         run->model().vocab_size(), options.golden, golden.vocab));
    return std::nullopt;
  }
  return std::move(*run);
}

void PrintModel(const Options& options, const GoldenRun& run, const ThreadPool& pool) {
  fmt::print("{}: {} parameters, {} threads, {}\n", options.model, run.model().parameters(), pool.threads(),
             kernels::InstructionSet());
}

// As the model is served: with activations rounded to int8.
int RunRounded(const Options& options, const GoldenFile& golden, ThreadPool& pool) {
  kernels::LimitPanelTarget(kernels::kNoPanelLimit);
  auto run = OpenRun(options, golden, pool);
  if (!run) return kExitUnusable;
  const Rounding result = CompareRounding(*run, golden, options.compare);
  for (const std::string& line : result.lines) fmt::print("{}\n", line);
  fmt::print("{}\n", result.Verdict());
  return result.pass() ? kExitPass : kExitFail;
}

// The text model behind the reference's rows of images, and behind those that the files' own tower makes.
int RunVision(const Options& options, ThreadPool& pool) {
  auto golden = ReadVisionGolden(options.golden);
  if (!golden) return Unusable(golden.error().message);
  kernels::LimitPanelTarget(kernels::PanelTarget::kNone);
  auto parts = golden->pictures.empty() ? api::Result<VisionParts>()
                                        : OpenVision(options.model, options.projector, options.golden);
  if (!parts) return Unusable(parts.error().message);
  auto run = OpenRun(options, golden->text, pool);
  if (!run) return kExitUnusable;
  PrintModel(options, *run, pool);
  Comparison result = Compare(*run, golden->text, options.compare);
  if (parts->tower == nullptr) {
    result.lines.emplace_back("no vision tower, or no pictures: only the text model was compared");
    return Report(options, result);
  }
  auto stages = RunVisionStages(*parts, options.golden, *golden, options.compare.tolerance, pool);
  if (!stages) return Unusable(stages.error().message);
  const Comparison own = Compare(*run, stages->text, options.compare);
  result.inputs_equal = stages->pass;
  result.lines.insert(result.lines.end(), stages->lines.begin(), stages->lines.end());
  for (const std::string& line : own.lines) result.lines.push_back("from pictures, " + line);
  result.max_abs = std::max(result.max_abs, own.max_abs);
  result.greedy_equal += own.greedy_equal;
  result.greedy_total += own.greedy_total;
  result.bit_identical = result.bit_identical && own.bit_identical;
  return Report(options, result);
}

int RunEncoder(const Options& options, ThreadPool& pool) {
  const auto golden = ReadEncoderGolden(options.golden);
  if (!golden) return Unusable(golden.error().message);
  kernels::LimitPanelTarget(kernels::PanelTarget::kNone);
  const auto files = weights::Open(options.model);
  if (!files) return Unusable(files.error().message);
  const auto result = models::IsEncoder(**files) ? CompareEncoder(options.model, *golden, pool)
                                                 : CompareDecoderVectors(options.model, *golden, pool);
  if (!result) return Unusable(result.error().message);
  for (const std::string& line : result->lines) fmt::print("{}\n", line);
  fmt::print("{}\n", result->Verdict(options.compare.tolerance));
  return result->pass(options.compare.tolerance) ? kExitPass : kExitFail;
}

int PrintFingerprint(const Options& options, ThreadPool& pool) {
  const auto fingerprint = Fingerprint(options.model, pool, options.kv_type, options.quantize);
  if (!fingerprint) return Unusable(fingerprint.error().message);
  fmt::print("{}\n", *fingerprint);
  return kExitPass;
}

int Run(const Options& options) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  ThreadPool pool(options.threads > 0 ? options.threads : cores);
  if (options.fingerprint) return PrintFingerprint(options, pool);
  if (options.golden.empty()) return Unusable("golden is required");
  if (options.verify_drafts) return RunVerifyDrafts(options, pool);
  if (options.quant.empty() && IsDraftGolden(options.golden)) return RunDrafts(options, pool);
  if (options.quant.empty() && IsEncoderGolden(options.golden)) return RunEncoder(options, pool);
  if (options.quant.empty() && IsVisionGolden(options.golden)) return RunVision(options, pool);
  const auto golden =
      options.quant.empty() ? ReadGolden(options.golden) : ReadQuantGolden(options.golden, options.quant);
  if (!golden) return Unusable(golden.error().message);
  // References multiply the stored weights with float32 activations.
  kernels::LimitPanelTarget(kernels::PanelTarget::kNone);
  auto run = OpenRun(options, *golden, pool);
  if (!run) return kExitUnusable;
  PrintModel(options, *run, pool);
  const int exact = Report(options, Compare(*run, *golden, options.compare));
  return options.quant.empty() ? exact : std::max(exact, RunRounded(options, *golden, pool));
}

}  // namespace
}  // namespace quire::runner::golden

int main(int argc, char** argv) {
  using quire::runner::golden::Options;
  Options options;
  CLI::App app{
      "Runs a model on golden prompts and compares logits and greedy continuations with the reference."};
  app.add_option("model", options.model, "GGUF file or Hugging Face directory")->required();
  app.add_option(
      "golden", options.golden,
      "directory with golden.json and golden.safetensors; with --quant, the .quant_golden.json file");
  app.add_flag(
      "--fingerprint", options.fingerprint,
      "print a hash of what the model computes from a fixed prompt, to compare machines; needs no golden");
  app.add_option("--quantize", options.quantize,
                 "with --fingerprint: quantize the weights to this type at load (Q8_0, Q6_K, Q4_K, Q4_0)");
  app.add_option("--chunk", options.compare.chunks,
                 "also prefill in chunks of this many tokens; must be bit-identical; may be given again")
      ->check(CLI::PositiveNumber);
  app.add_flag("--restore-every-offset", options.compare.restore_every_offset,
               "restore a snapshot at every offset of a prompt and go on; must be bit-identical");
  app.add_option("--threads", options.threads, "compute threads; 0 = one per core")
      ->check(CLI::Range(0, 1024));
  app.add_option("--tolerance", options.compare.tolerance, "largest logit difference that passes")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--quant", options.quant, "quantized type whose goldens to read (Q8_0)");
  app.add_option("--target", options.target,
                 "for a draft model: the model it drafts for, if not that beside the golden directory");
  app.add_option("--projector", options.projector,
                 "GGUF file with the vision tower, where it is not in the model's own files");
  app.add_option("--kv-cache-type", options.kv_type, "KV cache type")
      ->transform(CLI::CheckedTransformer(std::vector<std::pair<std::string, quire::api::KvType>>(
          quire::api::kKvTypes.begin(), quire::api::kKvTypes.end())));
  app.add_flag(
      "--verify-drafts", options.verify_drafts,
      "answer the golden's prompts greedily and print how many draft tokens would be accepted at each "
      "position: of prompt lookup, and of the model's MTP layer or, with --target, of the model itself");
  app.add_flag("--verbose", options.compare.verbose, "compare hidden activations too");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fputs(fmt::format("quire-golden: {}\n", error.what()).c_str(), stderr);
    return 2;
  }
  return quire::runner::golden::Run(options);
}
