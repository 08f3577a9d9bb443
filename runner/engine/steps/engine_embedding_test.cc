// Embeddings: the bits of a text's vector depend on the text alone, and are what the reference's hidden
// states give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "runner/engine/testing/engine_harness.h"
#include "runner/weights/mapped_file.h"
#include "runner/weights/safetensors.h"
#include "tests/data/test_data.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Vector = std::vector<float>;

constexpr const char* kLfm2 = "tests/data/models/lfm2";
const std::string kText = "What is the capital of France, and why is it so far from the sea?";

// The model as one whose texts are pooled by mean.
class MeanModel {
 public:
  explicit MeanModel(const fs::path& model) : path_(OwnFolder()) {
    fs::create_directories(path_ / "1_Pooling");
    for (const auto& entry : fs::directory_iterator(model)) {
      fs::create_symlink(fs::absolute(entry.path()), path_ / entry.path().filename());
    }
    std::ofstream(path_ / "1_Pooling/config.json") << R"({"pooling_mode_mean_tokens": true})";
  }
  ~MeanModel() { fs::remove_all(path_); }
  MeanModel(const MeanModel&) = delete;
  MeanModel& operator=(const MeanModel&) = delete;
  std::string path() const { return path_.string(); }
  void Write(const std::string& name, const std::string& text) const {
    fs::remove(path_ / name);
    std::ofstream(path_ / name) << text;
  }

 private:
  fs::path path_;
};

api::Request Embed(api::EmbedPrompt prompt) {
  api::Request request;
  request.prompt = std::move(prompt);
  return request;
}
api::Request EmbedText(std::string text) { return Embed({std::move(text)}); }

Vector VectorOf(const Outcome& outcome) {
  EXPECT_TRUE(outcome.finished) << (outcome.failed ? outcome.failed->error.message : "");
  return outcome.finished ? outcome.finished->embedding : Vector();
}

double Length(const Vector& vector) {
  return std::sqrt(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0));
}

// Final hidden states of the reference, [ids, hidden], and the ids.
struct Reference {
  std::vector<api::TokenId> ids;
  std::vector<Vector> states;
};

Reference ReadReference(const fs::path& model) {
  const auto file = weights::MappedFile::Open(model / "golden.safetensors", uint64_t{1} << 30).value();
  const auto entries = weights::ParseSafetensors(file.bytes(), "golden").value();
  Reference reference;
  for (const auto& entry : entries) {
    if (entry.name == "p2.ids") {
      reference.ids.resize(entry.data.size() / sizeof(int32_t));
      std::memcpy(reference.ids.data(), entry.data.data(), entry.data.size());
    }
    if (entry.name != "p2.hidden.final_norm") continue;
    const auto width = static_cast<size_t>(entry.shape[1]);
    for (size_t at = 0; at < entry.data.size(); at += width * sizeof(float)) {
      Vector& state = reference.states.emplace_back(width);
      std::memcpy(state.data(), entry.data.data() + at, width * sizeof(float));
    }
  }
  EXPECT_FALSE(reference.ids.empty());
  EXPECT_EQ(reference.states.size(), reference.ids.size());
  return reference;
}

void ExpectNear(const Vector& got, Vector expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  const double length = Length(expected);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i] / length, tolerance) << what << " " << i;
  }
}

std::vector<fs::path> GoldenModels() {
  std::vector<fs::path> models = test_data::List("models");
  std::erase_if(models,
                [](const fs::path& path) { return path.filename().string().ends_with("_assistant"); });
  return models;
}

TEST(Embedding, IsThePooledHiddenStatesOfTheReference) {
  for (const fs::path& model : GoldenModels()) {
    SCOPED_TRACE(model);
    const Reference reference = ReadReference(model);
    EngineHarness last({.model = model.string(), .kv_cache_type = api::KvType::kF32});
    const Vector of_last = VectorOf(last.Generate(Embed({"", reference.ids})));
    ExpectNear(of_last, reference.states.back(), 2e-4, "last");
    EXPECT_NEAR(Length(of_last), 1, 1e-5);

    const MeanModel mean_model(model);
    EngineHarness mean({.model = mean_model.path(), .kv_cache_type = api::KvType::kF32});
    Vector sum(reference.states.front().size());
    for (const Vector& state : reference.states) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += state[i];
    }
    ExpectNear(VectorOf(mean.Generate(Embed({"", reference.ids}))), sum, 2e-4, "mean");

    const Vector raw = VectorOf(last.Generate(Embed({"", reference.ids, 0, false})));
    EXPECT_NEAR(Length(raw), Length(reference.states.back()), 1e-3 * Length(raw));
    const Vector cut = VectorOf(last.Generate(Embed({"", reference.ids, 5, true})));
    ASSERT_EQ(cut.size(), 5U);
    EXPECT_NEAR(Length(cut), 1, 1e-5);
    EXPECT_NEAR(cut[0] * raw[1], cut[1] * raw[0], 1e-5 * Length(raw));
  }
}

class SameVector : public testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<EngineHarness> Make(EngineLimits limits = {}, bool starts = true) const {
    if (limits.cache_bytes == 0) limits.cache_bytes = kPlenty;
    limits.check_invariants_every = 1;
    return std::make_unique<EngineHarness>(
        EngineHarnessSetup{.model = GetParam() ? mean_.path() : std::string(kLfm2),
                           .limits = limits,
                           .model_stops = false,
                           .starts = starts});
  }
  Vector Alone() const { return VectorOf(Make()->Generate(EmbedText(kText))); }

  const MeanModel mean_{kLfm2};
};

TEST_P(SameVector, InChunksOfAnySize) {
  const Vector alone = Alone();
  for (const int32_t chunk : {1, 7, 16, 1 << 20}) {
    EXPECT_EQ(VectorOf(Make({.prefill_tokens = chunk})->Generate(EmbedText(kText))), alone) << chunk;
  }
}

TEST_P(SameVector, BesideOtherTextsAndAnswers) {
  const Vector alone = Alone();
  const auto harness = Make({.prefill_tokens = 24});
  std::vector<api::RequestId> others;
  std::vector<api::RequestId> texts;
  for (int i = 0; i < 6; ++i) {
    others.push_back(harness->Submit(Greedy("Count to " + std::to_string(i), 8 + i)));
    others.push_back(harness->Submit(EmbedText(kText + std::to_string(i))));
    texts.push_back(harness->Submit(EmbedText(kText)));
  }
  for (const auto id : texts) EXPECT_EQ(VectorOf(harness->Wait(id)), alone);
  for (const auto id : others) EXPECT_TRUE(harness->Wait(id).finished);
}

TEST_P(SameVector, AfterAPrefixOfItAndAfterItself) {
  const Vector alone = Alone();
  const auto harness = Make();
  harness->Generate(EmbedText(kText.substr(0, 30)));
  EXPECT_EQ(VectorOf(harness->Generate(EmbedText(kText))), alone);
  const Outcome again = harness->Generate(EmbedText(kText));
  EXPECT_EQ(VectorOf(again), alone);
  // A mean is one of all tokens, so none of them may come from the caches.
  if (GetParam()) {
    EXPECT_EQ(again.finished->usage.cached_tokens, 0);
  } else {
    EXPECT_GT(again.finished->usage.cached_tokens, 0);
  }
}

// An answer grows until the text that came after it has to make room.
TEST_P(SameVector, AfterPreemption) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += kText;
  const auto reference = Make();
  const Outcome alone = reference->Generate(EmbedText(text));
  const int64_t tokens = alone.ready->prompt_tokens;
  auto question = Greedy("Count", static_cast<int32_t>(tokens));
  question.params.draft_num_predict = 0;  // drafts may end it before the text has enough of the memory
  const int64_t prompt = reference->Generate(Greedy("Count", 1)).ready->prompt_tokens;
  const size_t bytes = reference->SequenceBytesOf(prompt + 64) + reference->SequenceBytesOf(tokens + 64);
  const auto harness = Make({.prefill_tokens = 1, .cache_bytes = bytes}, false);
  const auto answer = harness->Submit(question, {}, static_cast<int32_t>(tokens));
  const auto embedded = harness->Submit(EmbedText(text));
  harness->Start();
  EXPECT_EQ(VectorOf(harness->Wait(embedded)), VectorOf(alone));
  EXPECT_TRUE(harness->Wait(answer).finished);
  EXPECT_GT(harness->Stopped().stats().preemptions, 0U);
}

INSTANTIATE_TEST_SUITE_P(Poolings, SameVector, testing::Bool(),
                         [](const auto& mean) { return mean.param ? "Mean" : "Last"; });

api::EmbedPrompt Named(std::string text, std::string prompt_name) {
  return {.text = std::move(text), .prompt_name = std::move(prompt_name), .prompt_required = true};
}

TEST(Embedding, ADirectorySaysWhatStandsBeforeATextAndHowItIsWritten) {
  const MeanModel plain_model(kLfm2), model(kLfm2);
  model.Write("config_sentence_transformers.json",
              R"({"prompts": {"query": "QUERY: ", "document": "Text: "}, "default_prompt_name": "query"})");
  model.Write("sentence_bert_config.json", R"({"max_seq_length": 12, "do_lower_case": true})");
  EngineHarness plain({.model = plain_model.path()}), harness({.model = model.path()});
  const auto expected = [&](const std::string& text) {
    auto request = EmbedText(text);
    request.params.num_ctx = 12;
    return VectorOf(plain.Generate(request));
  };
  const Outcome by_default = harness.Generate(EmbedText("What IS the Capital of France, and why?"));
  EXPECT_EQ(VectorOf(by_default), expected("query: what is the capital of france, and why?"));
  EXPECT_EQ(by_default.ready->prompt_tokens, 12);
  EXPECT_EQ(VectorOf(harness.Generate(Embed(Named("The Capital", "document")))),
            expected("text: the capital"));
  EXPECT_EQ(VectorOf(harness.Generate(Embed(Named("The Capital", "none")))), expected("the capital"));
  EXPECT_EQ(VectorOf(plain.Generate(EmbedText("The Capital"))), expected("The Capital"));
}

TEST(Embedding, WithoutALengthOfItsOwnATextIsCutAtTheTokenizers) {
  const MeanModel model(kLfm2);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(fs::path(kLfm2) / "tokenizer_config.json"));
  config["model_max_length"] = 9;
  model.Write("tokenizer_config.json", config.dump());
  const auto tokens = [&] {
    EngineHarness harness({.model = model.path()});
    return harness.Generate(EmbedText(kText)).ready->prompt_tokens;
  };
  EXPECT_GT(tokens(), 9) << "a model that generates";
  model.Write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                                  {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  EXPECT_EQ(tokens(), 9);
  model.Write("sentence_bert_config.json", R"({"max_seq_length": 11})");
  EXPECT_EQ(tokens(), 11);
}

TEST(Embedding, WhatIsTooLongIsCutOrRefused) {
  EngineHarness harness;
  auto request = EmbedText(kText);
  const auto whole = harness.Generate(request);
  request.params.num_ctx = whole.ready->prompt_tokens;
  EXPECT_EQ(VectorOf(harness.Generate(request)), VectorOf(whole));
  request.params.num_ctx = 8;
  const auto cut = harness.Generate(request);
  EXPECT_EQ(cut.ready->prompt_tokens, 8);
  EXPECT_EQ(cut.finished->prompt_dropped, whole.ready->prompt_tokens - 8);
  EXPECT_NE(VectorOf(cut), VectorOf(whole));
  request.overflow = api::Overflow::kRefuse;
  const auto refused = harness.Generate(request);
  ASSERT_TRUE(refused.failed);
  EXPECT_EQ(refused.failed->error.code, api::ErrorCode::kContextLengthExceeded);
  EXPECT_THAT(refused.failed->error.message, HasSubstr("the input length exceeds the context length"));
}

TEST(Embedding, WhatTheModelDoesNotHaveIsRefused) {
  EngineHarness harness;
  const auto message = [&](api::EmbedPrompt prompt) {
    const auto outcome = harness.Generate(Embed(std::move(prompt)));
    EXPECT_TRUE(outcome.failed);
    return outcome.failed ? outcome.failed->error.message : "";
  };
  EXPECT_THAT(message({"", {1 << 30}}), HasSubstr("no token 1073741824"));
  EXPECT_THAT(message({"a", {}, 1 << 20}), HasSubstr("dimensions"));
}

}  // namespace
}  // namespace quire::runner::engine
