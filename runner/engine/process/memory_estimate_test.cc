// Predicted and actual memory of a load, for every available checkpoint.
//
// QUIRE_MEMORY_MODEL=PATH: a larger model, whose expectation is compared with the memory of this process,
// which must not have had another one before.
#include "runner/engine/process/memory_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/engine/shares/prefill_budget.h"
#include "runner/engine/steps/cache_budget.h"
#include "runner/engine/testing/engine_harness.h"
#include "runner/kernels/numa_plan.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

constexpr double kErrorMax = 0.05;
constexpr int64_t kMachine = int64_t{8} << 30;

std::vector<std::string> Models() {
  std::vector<std::string> models = {kDemoModel, "packaging/models/quire-demo-Q8_0.gguf"};
  for (const char* folder : {"models", "gguf", "gguf_quant"}) {
    for (const fs::path& path : test_data::List(folder)) {
      // A draft model is loaded beside its target only.
      if (path.filename().string().find("assistant") != std::string::npos) continue;
      if (path.extension() == ".gguf" || fs::is_directory(path)) models.push_back(path.string());
    }
  }
  std::ranges::sort(models.begin() + 2, models.end());
  return models;
}

std::string NameOf(const testing::TestParamInfo<std::string>& model) {
  const fs::path path(model.param);
  const fs::path folder = path.parent_path();
  std::string name = folder.parent_path().filename().string() + "_" + folder.filename().string() + "_" +
                     path.filename().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

const Progress kSilent = [](float, std::string_view) {};

// As many as run at once, among them a prompt that fills a step, then one whose tokens are scored: the
// largest steps there are.
void RunLargestStep(EngineHarness& harness, const EngineLimits& limits, int32_t prompt_tokens) {
  const auto tokens = [](int32_t count, int32_t seed) {
    api::Request request;
    api::TokenPrompt prompt;
    for (int32_t i = 0; i < count; ++i) prompt.tokens.push_back(10 + (i * 7 + seed * 13) % 200);
    request.prompt = std::move(prompt);
    request.params.num_predict = 1000;
    request.params.temperature = 1;
    return request;
  };
  std::vector<api::RequestId> ids;
  for (int32_t i = 1; i < limits.running_max; ++i) ids.push_back(harness.Submit(tokens(5, i)));
  for (const auto id : ids) harness.Post(api::ipc::Credit{id, 1000});
  for (const auto id : ids) harness.WaitUntil(id, [](const Outcome& seen) { return !seen.deltas.empty(); });
  ids.push_back(harness.Submit(tokens(prompt_tokens, 0)));
  harness.WaitUntil(ids.back(), [](const Outcome& seen) { return !seen.deltas.empty(); });
  harness.Post(api::ipc::Cancel{ids.back()});
  api::Request scored = tokens(prompt_tokens, 0);
  scored.prompt_logprobs = 0;
  ids.push_back(harness.Submit(std::move(scored)));
  harness.WaitUntil(ids.back(), [](const Outcome& seen) { return !seen.deltas.empty(); });
  for (const auto id : ids) harness.Post(api::ipc::Cancel{id});
}

class MemoryNeed : public testing::TestWithParam<std::string> {};

TEST_P(MemoryNeed, IsWhatTheModelThenHolds) {
  const auto opened = Open(GetParam(), kSilent, {});
  ASSERT_TRUE(opened) << opened.error().message;
  const EngineLimits limits{.prefill_tokens = 512, .cache_bytes = kPlenty, .prefix_cache = false};
  const auto estimate =
      EstimateMemory(*opened->metadata_model, limits, /*process=*/0, opened->metadata_model->context_length(),
                     static_cast<int64_t>(kPlenty), kMachine);
  EngineHarness harness({.model = GetParam(), .limits = limits, .threads = 2, .model_stops = false});
  RunLargestStep(harness, limits, std::min(opened->metadata_model->context_length() - 200, 700));
  const Engine& engine = harness.Stopped();
  EXPECT_EQ(estimate.cache_bytes, engine.cache_bytes());
  EXPECT_EQ(estimate.weight_bytes, engine.resident_weight_bytes());
  const auto resident = static_cast<double>(engine.resident_weight_bytes() + engine.resident_scratch_bytes());
  // The engine counts its own memory, without its threads' stacks.
  const auto predicted = static_cast<double>(estimate.weight_bytes + estimate.scratch_bytes -
                                             ThreadBytes(*opened->metadata_model));
  RecordProperty("predicted_bytes", std::to_string(estimate.weight_bytes + estimate.scratch_bytes));
  RecordProperty("resident_bytes",
                 std::to_string(engine.resident_weight_bytes() + engine.resident_scratch_bytes()));
  EXPECT_NEAR(predicted / resident, 1, kErrorMax)
      << "weights " << estimate.weight_bytes << ", scratch " << estimate.scratch_bytes << " but "
      << engine.resident_scratch_bytes();
}

TEST(MemoryNeedOfCaches, AreModestWhereNothingIsSaid) {
  const auto opened = Open(kDemoModel, kSilent, {});
  ASSERT_TRUE(opened);
  const int64_t much = int64_t{1} << 50;
  const auto unconstrained =
      EstimateMemory(*opened->metadata_model, {}, 0, 4096, /*requested_cache_bytes=*/0, much);
  EXPECT_GE(unconstrained.cache_bytes, unconstrained.cache_min_bytes);
  EXPECT_LE(unconstrained.cache_bytes, int64_t{4} << 30);
  const auto least = EstimateMemory(*opened->metadata_model, {}, 0, 4096, /*requested_cache_bytes=*/0, 0);
  EXPECT_EQ(least.cache_bytes, least.cache_min_bytes);
  const auto asked = EstimateMemory(*opened->metadata_model, {}, 0, 4096, /*requested_cache_bytes=*/much, 0);
  EXPECT_EQ(asked.cache_bytes, much);
  EXPECT_EQ(asked.cache_min_bytes, much) << "what the operator says holds as it is";
}

// The smallest caches in which a context of the last runner fits are the least that the next one asks for.
TEST(MemoryNeedOfCaches, HoldTheContextOfRequestsThatGoOn) {
  for (const char* path : {kDemoModel, "tests/data/models/gemma3", "tests/data/models/qwen3_next"}) {
    const auto opened = Open(path, kSilent, {});
    ASSERT_TRUE(opened) << opened.error().message;
    const cache::Layout& layout = opened->metadata_model->cache_layout();
    const auto holds = [&](int64_t budget) {
      const auto made = cache::HybridCache::Create(
          layout, {.bytes = ShareCache(layout, nullptr, static_cast<size_t>(budget)).model});
      return (*made)->LargestSequence(StepTarget().tokens_max);
    };
    for (const int32_t tokens : {1, 700, 1000, 2048}) {
      SCOPED_TRACE(std::string(path) + " " + std::to_string(tokens));
      const size_t needed = BudgetForContext(layout, nullptr, tokens);
      EXPECT_GE(holds(static_cast<int64_t>(needed)), tokens);
      const auto estimate = EstimateMemory(*opened->metadata_model, {}, 0, 2048, /*requested_cache_bytes=*/0,
                                           /*available=*/0, needed);
      EXPECT_GE(estimate.cache_min_bytes, static_cast<int64_t>(needed));
      EXPECT_GE(estimate.cache_bytes, estimate.cache_min_bytes);
      // No larger than what held it.
      const int64_t granted = estimate.cache_min_bytes + 12345;
      const auto held = static_cast<int32_t>(std::min<int64_t>(holds(granted), 1 << 20));
      EXPECT_LE(BudgetForContext(layout, nullptr, held), static_cast<size_t>(granted));
    }
  }
}

// Stacks, sums of attention, and what is filled for streamed matrices: of each compute thread.
TEST(MemoryNeedOfThreads, GrowsWithThem) {
  const auto opened = Open(kDemoModel, kSilent, {});
  ASSERT_TRUE(opened);
  const auto estimate = [&](int threads, int64_t panels) {
    SetComputeThreads(threads);
    const auto model = LoadMetadataModel(opened->loaded.files, {.panel_bytes_max = panels});
    EXPECT_TRUE(model);
    const auto bytes = EstimateMemory(**model, {}, 0, 4096, /*requested_cache_bytes=*/1 << 20, kMachine);
    SetComputeThreads(0);
    return bytes;
  };
  const auto two = estimate(2, 0), many = estimate(64, 0);
  EXPECT_GE(many.scratch_bytes - two.scratch_bytes, 62 * (int64_t{512} << 10));
  EXPECT_GT(many.weight_bytes, two.weight_bytes);
  EXPECT_EQ(estimate(64, weights::kNoPanelLimit).weight_bytes,
            estimate(2, weights::kNoPanelLimit).weight_bytes);
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryNeed, testing::ValuesIn(Models()), NameOf);

// Memory of this process without file mappings.
int64_t AnonymousBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) << 10;
  }
  return 0;
}

TEST(MemoryNeedOfALargeModel, IsWhatTheProcessThenHas) {
  const char* path = std::getenv("QUIRE_MEMORY_MODEL");
  if (path == nullptr) GTEST_SKIP() << "no model in QUIRE_MEMORY_MODEL";
  const int64_t before = AnonymousBytes();
  const EngineLimits limits{.prefill_tokens = 512, .cache_bytes = kPlenty, .prefix_cache = false};
  auto opened = Open(path, kSilent, {});
  ASSERT_TRUE(opened) << opened.error().message;
  const auto estimate =
      EstimateMemory(*opened->metadata_model, limits, AnonymousBytes() - before,
                     opened->metadata_model->context_length(), static_cast<int64_t>(kPlenty), kMachine);
  opened = api::Fail(api::ErrorCode::kCancelled, "closed");
  EngineHarness harness({.model = path, .limits = limits, .threads = 2, .model_stops = false});
  RunLargestStep(harness, limits, 700);
  const auto cache = static_cast<int64_t>(harness.Stopped().stats().cache.resident_bytes);
  const int64_t has = AnonymousBytes() - before - cache;
  const int64_t predicted = estimate.weight_bytes + estimate.scratch_bytes;
  std::printf("%s: predicted %.1f MiB, has %.1f MiB, error %+.1f %%\n", path,
              static_cast<double>(predicted) / 1048576, static_cast<double>(has) / 1048576,
              100 * (static_cast<double>(predicted) / static_cast<double>(has) - 1));
  EXPECT_NEAR(static_cast<double>(predicted) / static_cast<double>(has), 1, kErrorMax);
}

}  // namespace
}  // namespace quire::runner::engine
