// The samplers that remember or look at more than one token draw the same answer whatever the batch, the
// chunks and the drafts are.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

struct NamedSampler {
  std::string name;
  api::GenerationParams params;
};

api::GenerationParams Sampled() {
  api::GenerationParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.seed = 17;
  params.num_predict = 48;
  return params;
}

template <class Change>
NamedSampler Make(std::string name, Change change) {
  NamedSampler sampler{std::move(name), Sampled()};
  change(sampler.params);
  return sampler;
}

std::vector<NamedSampler> Samplers() {
  using Params = api::GenerationParams;
  const auto dry = [](Params& params) {
    params.dry_multiplier = 3;
    params.dry_allowed_length = 1;
    params.dry_sequence_breakers = {"\n"};
  };
  const auto xtc = [](Params& params) {
    params.xtc_probability = 0.5F;
    params.xtc_threshold = 0.05F;
  };
  return {Make("dry", dry),
          Make("xtc", xtc),
          Make("top_n_sigma", [](Params& params) { params.top_n_sigma = 1.5F; }),
          Make("typical_p", [](Params& params) { params.typical_p = 0.7F; }),
          Make("mirostat_1", [](Params& params) { params.mirostat = 1; }),
          Make("mirostat_2",
               [](Params& params) {
                 params.mirostat = 2;
                 params.mirostat_tau = 3;
               }),
          Make("all",
               [&](Params& params) {
                 dry(params);
                 xtc(params);
                 params.typical_p = 0.9F;
                 params.top_n_sigma = 3;
                 params.repeat_penalty = 1.1F;
               }),
          Make("dry_mirostat", [&](Params& params) {
            dry(params);
            params.mirostat = 2;
          })};
}

class SampledAlike : public testing::TestWithParam<std::string> {
 protected:
  static std::unique_ptr<EngineHarness> Start(EngineLimits limits, int32_t threads = 2) {
    limits.cache_bytes = kPlenty;
    limits.check_invariants_every = 1;
    return std::make_unique<EngineHarness>(
        EngineHarnessSetup{.model = GetParam(), .limits = limits, .threads = threads, .model_stops = false});
  }
  // A text that prompt lookup finds drafts in.
  static api::Request RequestOf(const NamedSampler& sampler, bool drafts) {
    api::Request request = Logged({});
    request.prompt = api::RawPrompt{"one two three four one two three four one two three four one two"};
    request.params = sampler.params;
    if (!drafts) request.params.draft_num_predict = 0;
    request.return_context = true;
    return request;
  }
  static void ExpectSame(const Outcome& outcome, const Outcome& expected, const std::string& how) {
    ASSERT_TRUE(outcome.finished) << how << ": " << outcome.failed->error.message;
    EXPECT_EQ(outcome.finished->context, expected.finished->context) << how;
    EXPECT_EQ(outcome.logprobs(), expected.logprobs()) << how;
  }
};

TEST_P(SampledAlike, InChunksBatchesAndWithDrafts) {
  const std::vector<NamedSampler> samplers = Samplers();
  std::vector<Outcome> alone;
  alone.reserve(samplers.size());
  for (const NamedSampler& sampler : samplers) {
    alone.push_back(Start({})->Generate(RequestOf(sampler, false)));
    ASSERT_TRUE(alone.back().finished) << sampler.name << ": " << alone.back().failed->error.message;
    EXPECT_EQ(alone.back().finished->usage.output_tokens, 48) << sampler.name;
  }
  uint64_t drafted = 0;
  for (const int32_t draft_tokens : {0, 1, 4}) {
    for (const int32_t chunk : {1, 7, 1 << 20}) {
      const auto harness = Start({.prefill_tokens = chunk, .draft_tokens = draft_tokens}, chunk == 7 ? 1 : 2);
      std::vector<api::RequestId> ids;
      ids.reserve(samplers.size());
      for (const NamedSampler& sampler : samplers)
        ids.push_back(harness->Submit(RequestOf(sampler, draft_tokens > 0)));
      for (size_t i = 0; i < ids.size(); ++i) {
        ExpectSame(harness->Wait(ids[i]), alone[i],
                   samplers[i].name + ", chunks of " + std::to_string(chunk) + ", drafts of " +
                       std::to_string(draft_tokens));
      }
      drafted += harness->Stopped().stats().drafted;
    }
  }
  if (GetParam() != kDemoModel) return;
  // Models of random weights do not write what prompt lookup proposes, nor repeat what DRY looks for. The
  // bundled one does, and each sampler changes what is drawn.
  EXPECT_GT(drafted, 0U);
  const Outcome plain = Start({})->Generate(RequestOf({"plain", Sampled()}, false));
  for (size_t i = 0; i < samplers.size(); ++i)
    EXPECT_NE(alone[i].finished->context, plain.finished->context) << samplers[i].name;
}

std::string ModelName(const testing::TestParamInfo<std::string>& model) {
  std::string name = std::filesystem::path(model.param).stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, SampledAlike,
                         testing::Values(kDemoModel, "tests/data/models/gemma3", "tests/data/models/qwen3_5"),
                         ModelName);

}  // namespace
}  // namespace quire::runner::engine
