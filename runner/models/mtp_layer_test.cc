// The MTP layer, against a model that computes the same in another way: with a
// join that lets one of its two inputs through, it is a model of one layer whose embeddings are normed.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/draft_model.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

using test::PatchedModelFiles;

constexpr const char* kModel = "tests/data/models/qwen3_5";
constexpr const char* kAttention = "model.layers.3.";  // the one layer of the checkpoint that attends
const std::vector<TokenId> kMtpTokens = {5, 300, 17, 42, 9};

std::vector<std::byte> Bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// [hidden, 2 * hidden]: ones where input `half` goes to the output.
std::vector<float> Join(int64_t hidden, int64_t half) {
  std::vector<float> join(static_cast<size_t>(2 * hidden * hidden));
  for (int64_t i = 0; i < hidden; ++i) join[static_cast<size_t>(i * 2 * hidden + half * hidden + i)] = 1;
  return join;
}

void CopyLayer(PatchedModelFiles& files, const std::string& to) {
  std::vector<std::string> names;
  for (const weights::Tensor& tensor : files.tensors()) {
    if (tensor.name.starts_with(kAttention)) names.push_back(tensor.name);
  }
  for (const std::string& name : names) files.AddCopy(name, to + name.substr(std::strlen(kAttention)));
}

std::shared_ptr<PatchedModelFiles> WithMtpLayer(int64_t hidden, int64_t half) {
  auto files = std::make_shared<PatchedModelFiles>(kModel);
  CopyLayer(*files, "mtp.layers.0.");
  files->AddCopy("model.norm.weight", "mtp.norm.weight");
  files->AddCopy(std::string(kAttention) + "input_layernorm.weight", "mtp.pre_fc_norm_embedding.weight");
  files->AddCopy(std::string(kAttention) + "input_layernorm.weight", "mtp.pre_fc_norm_hidden.weight");
  files->Add("mtp.fc.weight", weights::DataType::kF32, {hidden, 2 * hidden}, Bytes(Join(hidden, half)));
  return files;
}

std::vector<float> Embedded(const Model& model, std::span<const TokenId> tokens) {
  ThreadPool pool(1);
  std::vector<float> rows(tokens.size() * static_cast<size_t>(model.hidden_size()));
  model.Embed(tokens, pool, rows);
  return rows;
}

// Logits of the last of kMtpTokens, computed in steps of `chunk`.
std::vector<float> Predict(MtpLayer& layer, const Model& target, std::span<const float> before,
                           int32_t chunk) {
  ThreadPool pool(2);
  auto cache = cache::HybridCache::Create(layer.cache_layout(), {.bytes = 16 << 20}).value();
  cache::Sequence sequence = cache->NewSequence();
  std::vector<float> logits(static_cast<size_t>(target.vocab_size()));
  const auto width = static_cast<size_t>(target.hidden_size());
  for (size_t from = 0; from < kMtpTokens.size();) {
    const size_t count = std::min(kMtpTokens.size() - from, static_cast<size_t>(chunk));
    const auto rows = static_cast<int32_t>(count);
    Batch batch{.tokens = {kMtpTokens.begin() + static_cast<ptrdiff_t>(from),
                           kMtpTokens.begin() + static_cast<ptrdiff_t>(from + count)},
                .row_begin = {0, rows},
                .logit_rows = {rows - 1}};
    const cache::Append appends[] = {{.sequence = &sequence, .tokens = rows}};
    auto step = cache->Begin(appends).value();
    layer.Forward(batch, before.subspan(from * width, count * width), *step, pool, logits);
    step->Commit();
    from += count;
  }
  return logits;
}

// The model of one layer: embeddings normed as the layer norms its input before the join.
std::vector<float> Expected() {
  auto original = LoadModel(std::make_shared<PatchedModelFiles>(kModel));
  EXPECT_TRUE(original);
  const auto hidden = static_cast<size_t>((*original)->hidden_size());
  const auto vocab = static_cast<size_t>((*original)->vocab_size());
  std::vector<TokenId> all(vocab);
  for (size_t i = 0; i < vocab; ++i) all[i] = static_cast<TokenId>(i);
  const std::vector<float> rows = Embedded(**original, all);
  return test::LastLogits(kModel, [&](PatchedModelFiles& files) {
    // The norm's weight, as bfloat16 and zero-centered.
    std::vector<float> weight(hidden);
    const weights::Tensor* norm = files.Find(std::string(kAttention) + "input_layernorm.weight");
    for (size_t i = 0; i < hidden; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, norm->data.data() + 2 * i, 2);
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      float value = 0;
      std::memcpy(&value, &bits, 4);
      weight[i] = value + 1;
    }
    std::vector<float> normed(rows.size());
    for (size_t row = 0; row < vocab; ++row) {
      double squares = 0;
      for (size_t i = 0; i < hidden; ++i)
        squares += double{rows[row * hidden + i]} * double{rows[row * hidden + i]};
      const double scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + 1e-6);
      for (size_t i = 0; i < hidden; ++i) {
        normed[row * hidden + i] = static_cast<float>(double{rows[row * hidden + i]} * scale) * weight[i];
      }
    }
    files.AddCopy("model.embed_tokens.weight", "lm_head.weight");
    files.json["tie_word_embeddings"] = false;
    files.Remove("model.embed_tokens.weight");
    files.Add("model.embed_tokens.weight", weights::DataType::kF32,
              {static_cast<int64_t>(vocab), static_cast<int64_t>(hidden)}, Bytes(normed));
    files.json["num_hidden_layers"] = 1;
    files.json["layer_types"] = {"full_attention"};
    files.MoveTo("model.layers.0.", "old.");
    CopyLayer(files, "model.layers.0.");
  });
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-4) << i;
}

TEST(MtpLayer, IsAModelOfOneLayerBehindItsJoin) {
  const std::vector<float> expected = Expected();
  for (const int64_t half : {0, 1}) {
    auto plain = LoadModel(std::make_shared<PatchedModelFiles>(kModel));
    ASSERT_TRUE(plain);
    const int64_t hidden = (*plain)->hidden_size();
    const auto files = WithMtpLayer(hidden, half);
    auto target = LoadModel(files);
    ASSERT_TRUE(target) << target.error().message;
    auto layer = LoadMtpLayer(files, **target);
    ASSERT_TRUE(layer) << layer.error().message;
    ASSERT_NE(*layer, nullptr);
    // The input is the token's embedding, or the state before it: then the tokens do not matter.
    const std::vector<float> tokens = Embedded(**target, kMtpTokens);
    const std::vector<float> others(tokens.size(), 3);
    const std::vector<float> whole = Predict(**layer, **target, half == 0 ? others : tokens, 5);
    ExpectNear(whole, expected);
    for (const int32_t chunk : {1, 2}) {
      EXPECT_EQ(Predict(**layer, **target, half == 0 ? others : tokens, chunk), whole) << chunk;
    }
  }
}

// Block 4 of such files, behind four layers; copies of the layer that attends.
void AddNextBlock(PatchedModelFiles& files, int64_t hidden, int64_t half) {
  std::vector<std::string> names;
  for (const weights::Tensor& tensor : files.tensors()) {
    if (tensor.name.starts_with("blk.3.")) names.push_back(tensor.name);
  }
  for (const std::string& name : names) files.AddCopy(name, "blk.4." + name.substr(6));
  files.AddCopy("output_norm.weight", "blk.4.nextn.shared_head_norm.weight");
  files.AddCopy("blk.3.attn_norm.weight", "blk.4.nextn.enorm.weight");
  files.AddCopy("blk.3.attn_norm.weight", "blk.4.nextn.hnorm.weight");
  files.Add("blk.4.nextn.eh_proj.weight", weights::DataType::kF32, {hidden, 2 * hidden},
            Bytes(Join(hidden, half)));
  files.json["qwen35.block_count"] = 5;
  files.json["qwen35.nextn_predict_layers"] = 1;
  if (const auto kinds = files.json.find("qwen35.attention.recurrent_layers"); kinds != files.json.end()) {
    kinds->push_back(false);
  }
}

TEST(MtpLayer, OfAGgufFileIsItsLastBlock) {
  const std::filesystem::path path = "tests/data/gguf/qwen3_5.f16.gguf";
  const std::vector<float> expected = Expected();
  for (const int64_t half : {0, 1}) {
    const auto plain = LoadModel(std::make_shared<PatchedModelFiles>(path));
    ASSERT_TRUE(plain);
    const auto files = std::make_shared<PatchedModelFiles>(path);
    AddNextBlock(*files, (*plain)->hidden_size(), half);
    auto target = LoadModel(files);
    ASSERT_TRUE(target) << target.error().message;
    // No layer of the model itself.
    EXPECT_EQ(test::LastLogits(**target), test::LastLogits(**plain));
    auto layer = LoadMtpLayer(files, **target);
    ASSERT_TRUE(layer) << layer.error().message;
    ASSERT_NE(*layer, nullptr);
    const std::vector<float> tokens = Embedded(**target, kMtpTokens);
    const std::vector<float> others(tokens.size(), 3);
    ExpectNear(Predict(**layer, **target, half == 0 ? others : tokens, 5), expected);
  }
}

TEST(MtpLayer, IsNullWithoutItsTensorsAndAnErrorWithSomeOfThem) {
  const auto plain = std::make_shared<PatchedModelFiles>(kModel);
  auto target = LoadModel(plain);
  ASSERT_TRUE(target);
  auto none = LoadMtpLayer(plain, **target);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr);
  const auto broken = WithMtpLayer((*target)->hidden_size(), 0);
  broken->Remove("mtp.layers.0.self_attn.k_proj.weight");
  const auto refused = LoadMtpLayer(broken, **target);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("mtp.layers.0.self_attn.k_proj.weight"), std::string::npos);
}

}  // namespace
}  // namespace quire::runner::models
