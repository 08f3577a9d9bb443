#include "runner/models/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/models/model.h"
#include "runner/models/sentence_pooling.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int32_t kHidden = 3;
const std::vector<float> kStates = {1, 2, 2, 0, 0, 4, 5, -2, 0, 0, 3, 4};  // [4, kHidden]

std::vector<float> Pooled(Pooling pooling, int64_t step) {
  Pooler pooler(pooling, kHidden, 4);
  for (int64_t from = 0; from < 4; from += step) {
    const int64_t count = std::min<int64_t>(step, 4 - from);
    std::vector<float> states;
    for (const int32_t row : pooler.RowsOf(count)) {
      const auto at = kStates.begin() + (from + row) * kHidden;
      states.insert(states.end(), at, at + kHidden);
    }
    pooler.Add(count, states);
  }
  return pooler.Finish();
}

TEST(Pooler, TakesMeanLastOrFirstAndNormalizesHoweverTheTextIsCut) {
  for (const int64_t step : {1, 2, 3, 4}) {
    EXPECT_EQ(Pooled(Pooling::kFirst, step), (std::vector<float>{1.0F / 3, 2.0F / 3, 2.0F / 3}));
    EXPECT_EQ(Pooled(Pooling::kLast, step), (std::vector<float>{0, 0.6F, 0.8F}));
    const double length = std::sqrt(6 * 6 + 3 * 3 + 10 * 10);
    EXPECT_EQ(Pooled(Pooling::kMean, step),
              (std::vector<float>{static_cast<float>(6 / length), static_cast<float>(3 / length),
                                  static_cast<float>(10 / length)}));
  }
}

TEST(Pooler, CutsBeforeItNormalizesAndMayLeaveTheLength) {
  Pooler pooler(Pooling::kMean, kHidden, 4);
  pooler.Add(4, kStates);
  EXPECT_EQ(pooler.Finish(0, false), (std::vector<float>{1.5F, 0.75F, 2.5F}));
  EXPECT_EQ(pooler.Finish(2, false), (std::vector<float>{1.5F, 0.75F}));
  const double length = std::sqrt(6 * 6 + 3 * 3);
  EXPECT_EQ(pooler.Finish(2),
            (std::vector<float>{static_cast<float>(6 / length), static_cast<float>(3 / length)}));
}

// As sentence-transformers saves Qwen3-Embedding: the tensors of the model inside, without "model." and a
// head.
TEST(SavedWithoutHead, LoadsAsWhatIsInsideOfAModelThatGenerates) {
  const auto load = [](const char* name, bool inside) {
    auto files = std::make_shared<test::PatchedModelFiles>("tests/data/models/llama");
    files->json["architectures"] = {name};
    files->json["tie_word_embeddings"] = false;
    files->Remove("lm_head.weight");
    if (inside) files->MoveTo("model.", "");
    return std::pair(IsSavedWithoutHead(*files), static_cast<bool>(LoadModel(files)));
  };
  EXPECT_EQ(load("LlamaModel", true), std::pair(true, true));
  EXPECT_EQ(load("LlamaForSequenceClassification", false), std::pair(true, true));
  EXPECT_EQ(load("LlamaForCausalLM", false), std::pair(false, false));
  const auto whole = weights::Open("tests/data/models/llama").value();
  EXPECT_FALSE(IsSavedWithoutHead(*whole));
}

TEST(ReadPooling, AsTheMetadataOfAGgufSays) {
  test::PatchedModelFiles files("tests/data/gguf/lfm2.f16.gguf");
  EXPECT_EQ(ReadPooling(files).value(), Pooling::kLast);
  files.json["lfm2.pooling_type"] = 1U;
  EXPECT_EQ(ReadPooling(files).value(), Pooling::kMean);
  files.json["lfm2.pooling_type"] = 2U;
  EXPECT_EQ(ReadPooling(files).value(), Pooling::kFirst);
  files.json["lfm2.pooling_type"] = 4U;
  EXPECT_THAT(ReadPooling(files).error().message, HasSubstr("lfm2.pooling_type 4, ranking"));
  files.json["lfm2.pooling_type"] = "mean";
  EXPECT_THAT(ReadPooling(files).error().message, HasSubstr("lfm2.pooling_type"));
}

TEST(ReadPooling, AsADirectorySays) {
  const fs::path directory = fs::path(testing::TempDir()) / "quire-pooling";
  fs::remove_all(directory);
  fs::create_directories(directory / "1_Pooling");
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::create_symlink(fs::absolute("tests/data/models/lfm2") / file, directory / file);
  }
  EXPECT_EQ(ReadPooling(*weights::Open(directory).value()).value(), Pooling::kLast);
  const auto says = [&](const std::string& text) {
    std::ofstream(directory / "1_Pooling/config.json") << text;
    return ReadPooling(*weights::Open(directory).value());
  };
  EXPECT_EQ(says(R"({"pooling_mode_mean_tokens": true})").value(), Pooling::kMean);
  EXPECT_EQ(says(R"({"pooling_mode_cls_token": true})").value(), Pooling::kFirst);
  EXPECT_EQ(says(R"({"pooling_mode_lasttoken": true})").value(), Pooling::kLast);
  EXPECT_THAT(says(R"({"pooling_mode_max_tokens": true})").error().message,
              HasSubstr("1_Pooling/config.json"));
  EXPECT_THAT(says("[").error().message, HasSubstr("1_Pooling/config.json"));
  EXPECT_EQ(says(R"({"embedding_dimension": 192, "pooling_mode": "mean"})").value(), Pooling::kMean);
  EXPECT_EQ(says(R"({"pooling_mode": "lasttoken", "include_prompt": true})").value(), Pooling::kLast);
  EXPECT_THAT(says(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})").error().message,
              HasSubstr("not exactly one kind"));
  EXPECT_THAT(says(R"({"pooling_mode": "mean", "include_prompt": false})").error().message,
              HasSubstr("include_prompt"));
  const auto with = [&](const std::string& kind) {
    std::ofstream(directory / "modules.json")
        << R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},)"
        << R"({"idx": 1, "name": "1", "path": "2_More", "type": "sentence_transformers.models.)" << kind
        << "\"}]";
    return says(R"({"pooling_mode": "mean"})");
  };
  EXPECT_EQ(with("Normalize").value(), Pooling::kMean);
  EXPECT_THAT(with("LayerNorm").error().message, HasSubstr("modules.json: LayerNorm is not supported"));
  fs::remove_all(directory);
}

}  // namespace
}  // namespace quire::runner::models
