// Speculative decoding does not change the output: over every model, with drafts of any acceptance rate, in
// batches, under cache pressure and with cancels.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "runner/engine/testing/engine_harness.h"
#include "runner/engine/testing/engine_subjects.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {
namespace {

using draft::DraftRequest;

constexpr const char* kDemoDraft = "packaging/models/quire-demo-draft-Q8_0.gguf";

// Output of requests without drafts, by prompt.
using Answers = std::map<std::vector<api::TokenId>, std::vector<api::TokenId>>;

// Drafts the known output, with some wrong tokens.
class Oracle final : public draft::Drafter {
 public:
  Oracle(const Answers& answers, int32_t wrong_of_100) : answers_(answers), wrong_of_100_(wrong_of_100) {}

  const std::string& architecture() const override { return name_; }
  int64_t weight_bytes() const override { return 0; }
  draft::RequiredHidden required_hidden() const override { return draft::RequiredHidden::kNone; }
  bool follows() const override { return false; }
  std::unique_ptr<draft::DraftState> CreateState(const draft::DraftContext&) override {
    return std::make_unique<draft::DraftState>();
  }
  void End(std::unique_ptr<draft::DraftState>, std::span<const api::TokenId>) override {}

  void ProposeDrafts(std::span<const DraftRequest> requests, ThreadPool&) override {
    for (const DraftRequest& request : requests) {
      request.draft_tokens->clear();
      for (const auto& [prompt, all] : answers_) {
        const auto begins = std::ranges::mismatch(request.tokens, all).in1 == request.tokens.end();
        if (!begins || prompt.size() > request.tokens.size()) continue;
        const auto next = std::span(all).subspan(request.tokens.size());
        for (size_t i = 0; i < next.size() && std::ssize(*request.draft_tokens) < request.num_draft_tokens;
             ++i) {
          const bool wrong = static_cast<int32_t>(random_() % 100) < wrong_of_100_;
          request.draft_tokens->push_back(wrong ? next[i] / 2 : next[i]);
        }
        break;
      }
    }
  }

 private:
  const Answers& answers_;
  const int32_t wrong_of_100_;
  const std::string name_ = "oracle";
  std::mt19937 random_{11};
};

api::Request Question(int i) {
  api::Request request = Logged(Greedy("Say something about number " + std::to_string(i * 7919 % 101) +
                                           (i % 3 == 0 ? ", and about rivers and boats too." : "."),
                                       10 + i % 30));
  request.return_context = true;
  if (i % 4 == 3) {
    request.params.temperature = 1;
    request.params.seed = i;
  }
  if (i % 5 == 2) request.params.repeat_penalty = 1.3F;
  if (i % 7 == 5) request.params.stop = {"e"};
  return request;
}

class Drafted : public testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<EngineHarness> Make(EngineLimits limits = {}, int32_t wrong_of_100 = 100) const {
    if (limits.cache_bytes == 0) limits.cache_bytes = kPlenty;
    limits.check_invariants_every = 1;
    EngineHarnessSetup setup{.model = GetParam().model,
                             .limits = limits,
                             .model_stops = false,
                             .kv_cache_type = GetParam().kv_cache_type};
    setup.drafter = [this, wrong_of_100] { return std::make_unique<Oracle>(answers_, wrong_of_100); };
    return std::make_unique<EngineHarness>(std::move(setup));
  }
  // The questions' answers without drafts.
  void GenerateAll(int count) {
    const auto harness = Make();
    std::vector<api::RequestId> ids;
    for (int i = 0; i < count; ++i) {
      api::Request request = Question(i);
      request.params.draft_num_predict = 0;
      ids.push_back(harness->Submit(std::move(request)));
    }
    for (const auto id : ids) {
      outcomes_.push_back(harness->Wait(id));
      const Outcome& outcome = outcomes_.back();
      ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
      EXPECT_EQ(outcome.finished->usage.draft.rounds, 0);
      const auto& all = outcome.finished->context;
      const auto prompt = static_cast<ptrdiff_t>(outcome.finished->usage.prompt_tokens);
      answers_[{all.begin(), all.begin() + prompt}] = all;
    }
    EXPECT_EQ(harness->Stopped().stats().drafted, 0U);
  }
  void ExpectSame(const Outcome& outcome, size_t i) const {
    ASSERT_TRUE(outcome.finished) << outcome.failed->error.message;
    EXPECT_EQ(outcome.text(), outcomes_[i].text()) << i;
    EXPECT_EQ(outcome.logprobs(), outcomes_[i].logprobs()) << i;
    EXPECT_EQ(outcome.finished->context, outcomes_[i].finished->context) << i;
    EXPECT_EQ(outcome.finished->reason, outcomes_[i].finished->reason) << i;
  }

  std::vector<Outcome> outcomes_;
  Answers answers_;
};

TEST_P(Drafted, EqualsPlainDecoding) {
  constexpr int kQuestions = 24;
  GenerateAll(kQuestions);
  for (const int32_t wrong : {0, 20, 100}) {
    for (const int32_t draft_tokens : {1, 4, 8}) {
      const auto harness = Make({.draft_tokens = draft_tokens}, wrong);
      std::vector<api::RequestId> ids;
      for (int i = 0; i < kQuestions; ++i) ids.push_back(harness->Submit(Question(i)));
      for (size_t i = 0; i < ids.size(); ++i) ExpectSame(harness->Wait(ids[i]), i);
      const auto stats = harness->Stopped().stats();
      EXPECT_GT(stats.drafted, 0U);
      if (wrong == 0) {
        EXPECT_GT(stats.accepted, 0U);
      } else {
        EXPECT_LT(stats.accepted, stats.drafted);
      }
    }
  }
}

TEST_P(Drafted, UnderCachePressureWithCancels) {
  constexpr int kQuestions = 20;
  GenerateAll(kQuestions);
  const auto longest =
      std::ranges::max(outcomes_, {}, [](const Outcome& o) { return o.finished->context.size(); });
  const auto tokens = static_cast<int64_t>(longest.finished->context.size());
  const auto harness = Make({.cache_bytes = Make()->SequenceBytesOf(3 * tokens), .draft_tokens = 5}, 30);
  std::vector<api::RequestId> ids;
  std::mt19937 random(5);
  for (int i = 0; i < kQuestions; ++i) {
    ids.push_back(harness->Submit(Question(i)));
    if (i % 4 == 2) {
      const auto other = harness->Submit(Question(static_cast<int>(random() % kQuestions)));
      if (i % 8 == 2)
        harness->WaitUntil(other, [](const Outcome& o) { return o.ended() || o.deltas.size() > 2; });
      harness->Post(api::ipc::Cancel{other});
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) ExpectSame(harness->Wait(ids[i]), i);
}

INSTANTIATE_TEST_SUITE_P(Models, Drafted, testing::ValuesIn(Subjects()), NameOf);

// Prompt lookup, which the engine does without a drafter.
TEST(DraftedByPromptLookup, EqualsPlainDecoding) {
  api::Request request = Logged(Greedy("", 200));
  request.prompt = api::RawPrompt{"one two three four one two three four one two three four one two"};
  request.return_context = true;
  EngineHarness harness({.limits = {.cache_bytes = kPlenty, .draft_tokens = 6}, .model_stops = false});
  api::Request plain = request;
  plain.params.draft_num_predict = 0;
  const auto expected = harness.Generate(plain);
  const auto drafted = harness.Generate(request);
  EXPECT_EQ(drafted.logprobs(), expected.logprobs());
  EXPECT_EQ(drafted.finished->context, expected.finished->context);
  const auto& usage = drafted.finished->usage.draft;
  EXPECT_GT(usage.accepted(), 0);
  EXPECT_LE(usage.accepted(), usage.drafted);
  EXPECT_EQ(usage.accepted_by_position.size(), 6U);
}

// The bundled model with its draft, in a conversation that goes on, branches and is preempted.
TEST(DraftedByModel, EqualsPlainDecoding) {
  EngineHarness plain;
  const auto question = [](int i) {
    return Logged(Greedy(
        i % 2 == 0 ? "Who are you?" : "What is the capital of France? Tell me " + std::to_string(i), 60));
  };
  EngineHarness drafted({.limits = {.cache_bytes = kPlenty,
                                    .draft_cache_bytes = kPlenty,
                                    .draft_tokens = 4,
                                    .check_invariants_every = 1},
                         .draft = kDemoDraft});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(drafted.Submit(question(i)));
  int32_t accepted = 0;
  for (int i = 0; i < 16; ++i) {
    const auto expected = plain.Generate(question(i));
    const auto got = drafted.Wait(ids[static_cast<size_t>(i)]);
    EXPECT_EQ(got.logprobs(), expected.logprobs()) << i;
    EXPECT_EQ(got.text(), expected.text()) << i;
    accepted += got.finished->usage.draft.accepted();
  }
  EXPECT_GT(accepted, 100);
}

// Sampled tokens against the distributions that they were sampled from, by rank: the 1st, the 2nd, the 3rd to
// 5th, the 6th to 20th and all others. With p the probabilities of these at each token, O the observed counts
// and V the sum of diag(p) - pp' over all but the last, (O - sum p)' V^-1 (O - sum p) has a chi-square
// distribution.
class RankTest {
 public:
  static constexpr size_t kFree = 4;  // degrees of freedom
  using Row = std::array<double, kFree>;

  void Add(const api::TokenLogprob& token) {
    Row probability{};
    size_t observed = kFree;
    for (size_t rank = 0; rank < token.top.size(); ++rank) {
      const size_t bin = rank < 2 ? rank : rank < 5 ? 2 : 3;
      probability[bin] += std::exp(static_cast<double>(token.top[rank].logprob));
      if (token.top[rank].id == token.chosen.id) observed = bin;
    }
    for (size_t i = 0; i < kFree; ++i) {
      off_[i] += (observed == i ? 1 : 0) - probability[i];
      for (size_t j = 0; j < kFree; ++j) {
        variance_[i][j] += (i == j ? probability[i] : 0) - probability[i] * probability[j];
      }
    }
    ++tokens_;
  }
  // By Gauss elimination of V x = O - sum p.
  double ChiSquare() const {
    auto v = variance_;
    Row x = off_;
    for (size_t i = 0; i < kFree; ++i) {
      for (size_t below = i + 1; below < kFree; ++below) {
        const double share = v[below][i] / v[i][i];
        for (size_t j = i; j < kFree; ++j) v[below][j] -= share * v[i][j];
        x[below] -= share * x[i];
      }
    }
    double sum = 0;
    for (size_t i = kFree; i-- > 0;) {
      for (size_t j = i + 1; j < kFree; ++j) x[i] -= v[i][j] * x[j];
      x[i] /= v[i][i];
      sum += off_[i] * x[i];
    }
    return sum;
  }
  int64_t tokens() const { return tokens_; }

 private:
  Row off_{};
  std::array<Row, kFree> variance_{};
  int64_t tokens_ = 0;
};

class SampledWithDrafts : public testing::TestWithParam<const char*> {};

TEST_P(SampledWithDrafts, HasTheModelsDistribution) {
  constexpr int64_t kTokens = 100'000;
  constexpr double kChiSquareMax = 13.277;  // of 4 degrees of freedom, p = 0.01
  EngineHarness harness({.limits = {.cache_bytes = kPlenty, .draft_cache_bytes = kPlenty, .draft_tokens = 3},
                         .model_stops = false,
                         .draft = GetParam()});
  RankTest test;
  int64_t accepted = 0;
  for (int64_t seed = 0; test.tokens() < kTokens;) {
    std::vector<api::RequestId> ids;
    for (int i = 0; i < 16; ++i) {
      api::Request request = Logged(Greedy("", 250));
      request.prompt = api::RawPrompt{"The lighthouse keeper said: the storm, the storm, the"};
      request.top_logprobs = 20;
      request.params.temperature = 1;
      request.params.top_k = 0;
      request.params.top_p = 1;
      request.params.seed = seed++;
      ids.push_back(harness.Submit(std::move(request)));
    }
    for (const auto id : ids) {
      const Outcome outcome = harness.Wait(id);
      ASSERT_TRUE(outcome.finished);
      accepted += outcome.finished->usage.draft.accepted();
      for (const auto& delta : outcome.deltas) {
        for (const auto& token : delta.logprobs) test.Add(token);
      }
    }
  }
  EXPECT_GT(accepted, kTokens / 100) << "drafts must have been accepted";
  EXPECT_LT(test.ChiSquare(), kChiSquareMax)
      << "over " << test.tokens() << " tokens, " << accepted << " of them drafted";
  std::printf("chi-square %.2f over %ld tokens, %ld of them drafted\n", test.ChiSquare(),
              static_cast<long>(test.tokens()), static_cast<long>(accepted));
}

INSTANTIATE_TEST_SUITE_P(Drafts, SampledWithDrafts, testing::Values("", kDemoDraft), [](const auto& draft) {
  return *draft.param == '\0' ? "PromptLookup" : "DraftModel";
});

TEST(DraftedByModel, ADraftOfAnotherVocabularyIsRefused) {
  const auto loaded = Load(kDemoModel, [](float, std::string_view) {}, {.draft = "tests/data/models/lfm2"});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, api::ErrorCode::kBadModel);
  EXPECT_NE(loaded.error().message.find("vocabulary"), std::string::npos) << loaded.error().message;
}

// Gemma 4's assistant reads the target's caches.
TEST(DraftedByHead, EqualsPlainDecoding) {
  const std::string target = "tests/data/models/gemma4_e";
  EngineHarness plain({.model = target, .model_stops = false});
  EngineHarness drafted({.model = target,
                         .limits = {.cache_bytes = kPlenty, .draft_tokens = 3, .check_invariants_every = 1},
                         .model_stops = false,
                         .draft = "tests/data/models/gemma4_assistant"});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 12; ++i) ids.push_back(drafted.Submit(Question(i)));
  for (int i = 0; i < 12; ++i) {
    const auto expected = plain.Generate(Question(i));
    const auto got = drafted.Wait(ids[static_cast<size_t>(i)]);
    EXPECT_EQ(got.logprobs(), expected.logprobs()) << i;
    EXPECT_EQ(got.finished->context, expected.finished->context) << i;
  }
  EXPECT_GT(drafted.Stopped().stats().drafted, 0U);
}

// A copy of a checkpoint directory with random tensors for an MTP layer.
struct MtpTensors {
  std::string_view copied;  // the layer whose shapes it has
  std::string layer;        // its own prefix
  std::array<std::string, 3> norms;
  std::string join;
};

std::filesystem::path WithMtpLayer(const std::filesystem::path& model, const MtpTensors& mtp) {
  using Json = nlohmann::ordered_json;
  const auto folder = OwnFolder();
  std::filesystem::copy(model, folder, std::filesystem::copy_options::recursive);
  const auto path = folder / "model.safetensors";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::string file;
  {
    std::ifstream in(path, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  Json header = Json::parse(file.substr(8, header_bytes));
  std::string data = file.substr(8 + header_bytes);
  std::mt19937 random(9);
  const auto add = [&](const std::string& name, const Json& shape) {
    int64_t elements = 1;
    for (const auto& size : shape) elements *= size.get<int64_t>();
    const size_t begin = data.size();
    for (int64_t i = 0; i < elements; ++i) {
      const float value = (static_cast<float>(random() % 2001) - 1000) / 8000;
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  };
  const Json hidden = header["model.norm.weight"]["shape"];
  const Json tensors = header;
  for (const auto& [name, tensor] : tensors.items()) {
    if (name.starts_with(mtp.copied)) add(mtp.layer + name.substr(mtp.copied.size()), tensor["shape"]);
  }
  for (const std::string& norm : mtp.norms) add(norm + ".weight", hidden);
  add(mtp.join + ".weight", {hidden[0], 2 * hidden[0].get<int64_t>()});
  const std::string written = header.dump();
  const uint64_t bytes = written.size();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  out << written << data;
  return folder;
}

// Its weights here are random, so most drafts are rejected.
void ExpectPlainDecoding(const std::filesystem::path& target, const std::filesystem::path& with_layer) {
  EngineHarness plain({.model = target.string(), .model_stops = false});
  EngineHarness drafted({.model = with_layer.string(),
                         .limits = {.prefill_tokens = 16,
                                    .cache_bytes = kPlenty,
                                    .draft_cache_bytes = kPlenty,
                                    .draft_tokens = 3,
                                    .check_invariants_every = 1},
                         .model_stops = false});
  std::vector<api::RequestId> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(drafted.Submit(Question(i)));
  for (int i = 0; i < 16; ++i) {
    const auto expected = plain.Generate(Question(i));
    const auto got = drafted.Wait(ids[static_cast<size_t>(i)]);
    EXPECT_EQ(got.logprobs(), expected.logprobs()) << i;
    EXPECT_EQ(got.finished->context, expected.finished->context) << i;
  }
  // The same again begins behind a reused prefix, whose hidden states were not kept.
  EXPECT_EQ(drafted.Generate(Question(3)).logprobs(), plain.Generate(Question(3)).logprobs());
  EXPECT_GT(drafted.Stopped().stats().drafted, 100U);
  std::filesystem::remove_all(with_layer);
}

TEST(DraftedByMtpLayer, EqualsPlainDecoding) {
  const std::string target = "tests/data/models/qwen3_5";
  ExpectPlainDecoding(
      target, WithMtpLayer(target, {"model.layers.3.",
                                    "mtp.layers.0.",
                                    {"mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"},
                                    "mtp.fc"}));
}

// The layer behind the last, with latent attention or grouped queries, and experts.
class DraftedByDeclaredMtpLayer : public testing::TestWithParam<const char*> {};

TEST_P(DraftedByDeclaredMtpLayer, EqualsPlainDecoding) {
  QUIRE_FIND_OR_SKIP(target, std::string("models/") + GetParam());
  const std::string layer = "model.layers.4.";
  const auto with_layer =
      WithMtpLayer(target, {"model.layers.3.",
                            layer,
                            {layer + "enorm", layer + "hnorm", layer + "shared_head.norm"},
                            layer + "eh_proj"});
  const auto path = with_layer / "config.json";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  std::ifstream in(path);
  auto config = nlohmann::json::parse(in);
  config["num_nextn_predict_layers"] = 1;
  std::ofstream(path, std::ios::trunc) << config.dump();
  ExpectPlainDecoding(target, with_layer);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftedByDeclaredMtpLayer, testing::Values("deepseek_v3", "glm4_moe"));

}  // namespace
}  // namespace quire::runner::engine
