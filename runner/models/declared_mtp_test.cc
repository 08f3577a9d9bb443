// The MTP layer of a declared family, against a model of one layer that computes the same: a join that lets
// one of its two inputs through makes it such a model, whose embeddings are normed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/draft_model.h"
#include "runner/models/testing/moe_models.h"
#include "tests/data/test_data.h"

namespace quire::runner::models {
namespace {

using test::kMoeBase;
using test::kMoeLayers;
using test::MoeModel;
using test::PatchedModelFiles;

const std::vector<TokenId> kTokens = {5, 300, 17, 42, 9};  // those of LastLogits()
const std::string kSparse = "model.layers.1.";             // a layer with experts

void PutFloats(PatchedModelFiles& files, const std::string& name, std::vector<int64_t> shape,
               std::span<const float> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  files.Remove(name);
  files.Add(name, weights::DataType::kF32, std::move(shape), std::move(bytes));
}

void CopyLayerAs(PatchedModelFiles& files, const std::string& from, const std::string& to) {
  std::vector<std::string> names;
  for (const weights::Tensor& tensor : files.tensors()) {
    if (tensor.name.starts_with(from)) names.push_back(tensor.name);
  }
  for (const std::string& name : names) files.AddCopy(name, to + name.substr(from.size()));
}

// The layer behind the last one, whose join passes on input `half`: the token, or the state before it.
std::shared_ptr<PatchedModelFiles> WithMtp(const MoeModel& family, int64_t hidden, int64_t half) {
  auto files = std::make_shared<PatchedModelFiles>(kMoeBase);
  family.make(*files);
  files->json["num_nextn_predict_layers"] = 1;
  const std::string layer = "model.layers." + std::to_string(kMoeLayers) + ".";
  files->MoveTo(layer, "old.");
  CopyLayerAs(*files, kSparse, layer);
  files->AddF32(layer + "enorm.weight", {hidden}, 1);
  files->AddF32(layer + "hnorm.weight", {hidden}, 1);
  files->AddCopy("model.norm.weight", layer + "shared_head.norm.weight");
  std::vector<float> join(static_cast<size_t>(2 * hidden * hidden));
  for (int64_t i = 0; i < hidden; ++i) join[static_cast<size_t>(i * 2 * hidden + half * hidden + i)] = 1;
  PutFloats(*files, layer + "eh_proj.weight", {hidden, 2 * hidden}, join);
  return files;
}

std::vector<float> EmbeddedTokens(const Model& model, std::span<const TokenId> tokens) {
  ThreadPool pool(1);
  std::vector<float> rows(tokens.size() * static_cast<size_t>(model.hidden_size()));
  model.Embed(tokens, pool, rows);
  return rows;
}

// Logits of the last of kTokens, computed in steps of `chunk`.
std::vector<float> PredictRows(MtpLayer& layer, const Model& target, std::span<const float> before,
                               size_t chunk) {
  ThreadPool pool(2);
  auto cache = cache::HybridCache::Create(layer.cache_layout(), {.bytes = 16 << 20}).value();
  cache::Sequence sequence = cache->NewSequence();
  std::vector<float> logits(static_cast<size_t>(target.vocab_size()));
  const auto width = static_cast<size_t>(target.hidden_size());
  for (size_t from = 0; from < kTokens.size(); from += chunk) {
    const size_t count = std::min(kTokens.size() - from, chunk);
    const auto rows = static_cast<int32_t>(count);
    const auto first = kTokens.begin() + static_cast<ptrdiff_t>(from);
    const Batch batch{.tokens = {first, first + rows}, .row_begin = {0, rows}, .logit_rows = {rows - 1}};
    const cache::Append appends[] = {{.sequence = &sequence, .tokens = rows}};
    auto step = cache->Begin(appends).value();
    layer.Forward(batch, before.subspan(from * width, count * width), *step, pool, logits);
    step->Commit();
  }
  return logits;
}

// The model of one layer, whose embeddings are normed as the layer norms its input before the join.
std::vector<float> ExpectedOf(const MoeModel& family, const Model& model, float eps) {
  const auto hidden = static_cast<size_t>(model.hidden_size()),
             vocab = static_cast<size_t>(model.vocab_size());
  std::vector<TokenId> all(vocab);
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> rows = EmbeddedTokens(model, all);
  for (size_t row = 0; row < vocab; ++row) {
    const std::span<float> values = std::span(rows).subspan(row * hidden, hidden);
    double squares = 0;
    for (const float value : values) squares += double{value} * double{value};
    const double scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + double{eps});
    for (float& value : values) value = static_cast<float>(double{value} * scale);
  }
  return test::LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
    family.make(files);
    PutFloats(files, "model.embed_tokens.weight", {static_cast<int64_t>(vocab), static_cast<int64_t>(hidden)},
              rows);
    files.json["num_hidden_layers"] = 1;
    files.json["first_k_dense_replace"] = 0;
    files.MoveTo("model.layers.0.", "old.");
    CopyLayerAs(files, kSparse, "model.layers.0.");
  });
}

class DeclaredMtp : public testing::TestWithParam<MoeModel> {};

TEST_P(DeclaredMtp, IsAModelOfOneLayerBehindItsJoin) {
  auto plain = test::LoadPatched(kMoeBase, GetParam().make);
  ASSERT_TRUE(plain) << plain.error().message;
  const std::vector<float> expected = ExpectedOf(GetParam(), **plain, 1e-5F);
  for (const int64_t half : {0, 1}) {
    const int64_t hidden = (*plain)->hidden_size();
    auto target = LoadModel(WithMtp(GetParam(), hidden, half));
    ASSERT_TRUE(target) << target.error().message;
    EXPECT_EQ(test::LastLogits(**target), test::LastLogits(**plain)) << "no layer of the model itself";
    // Files of their own: a loader gives back the pages of tensors that it has packed, which here are in no
    // file.
    auto layer = LoadMtpLayer(WithMtp(GetParam(), hidden, half), **target);
    ASSERT_TRUE(layer) << layer.error().message;
    ASSERT_NE(*layer, nullptr);
    const std::vector<float> tokens = EmbeddedTokens(**target, kTokens);
    const std::vector<float> before = half == 0 ? std::vector<float>(tokens.size(), 3) : tokens;
    const std::vector<float> whole = PredictRows(**layer, **target, before, kTokens.size());
    ASSERT_EQ(whole.size(), expected.size());
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], expected[i], 1e-4) << i;
    for (const size_t chunk : {1, 2})
      EXPECT_EQ(PredictRows(**layer, **target, before, chunk), whole) << chunk;
  }
}

// Published checkpoints often name the layer in their configuration and do not have it.
TEST_P(DeclaredMtp, IsNullWithoutItsTensorsAndAnErrorWithSomeOfThem) {
  auto plain = test::LoadPatched(kMoeBase, GetParam().make);
  ASSERT_TRUE(plain) << plain.error().message;
  const int64_t hidden = (*plain)->hidden_size();
  const std::string layer = "model.layers." + std::to_string(kMoeLayers) + ".";
  for (const std::string missing : {"eh_proj.weight", "hnorm.weight"}) {
    const auto files = WithMtp(GetParam(), hidden, 0);
    files->Remove(layer + missing);
    auto target = LoadModel(files);
    ASSERT_TRUE(target) << target.error().message;
    auto loaded = LoadMtpLayer(files, **target);
    if (missing == "eh_proj.weight") {
      ASSERT_TRUE(loaded) << loaded.error().message;
      EXPECT_EQ(*loaded, nullptr);
    } else {
      ASSERT_FALSE(loaded);
      EXPECT_NE(loaded.error().message.find(layer + missing), std::string::npos) << loaded.error().message;
    }
  }
}

// GLM-4.5's GGUF files have it as the last block, which is no layer of the model itself.
TEST(DeclaredMtpOfGguf, IsItsLastBlock) {
  QUIRE_FIND_OR_SKIP(path, "gguf/glm4_moe.f16.gguf");
  const auto plain = LoadModel(std::make_shared<PatchedModelFiles>(path.string()));
  ASSERT_TRUE(plain) << plain.error().message;
  const int64_t hidden = (*plain)->hidden_size();
  const auto files = std::make_shared<PatchedModelFiles>(path.string());
  const int64_t layers = files->json["glm4moe.block_count"].get<int64_t>();
  const std::string last = "blk." + std::to_string(layers - 1) + ".",
                    next = "blk." + std::to_string(layers) + ".";
  files->json["glm4moe.block_count"] = layers + 1;
  files->json["glm4moe.nextn_predict_layers"] = 1;
  CopyLayerAs(*files, last, next);
  files->AddCopy(last + "attn_norm.weight", next + "nextn.enorm.weight");
  files->AddCopy(last + "attn_norm.weight", next + "nextn.hnorm.weight");
  files->AddCopy("output_norm.weight", next + "nextn.shared_head_norm.weight");
  test::PutRandom(*files, next + "nextn.eh_proj.weight", {hidden, 2 * hidden});
  auto target = LoadModel(files);
  ASSERT_TRUE(target) << target.error().message;
  EXPECT_EQ(test::LastLogits(**target), test::LastLogits(**plain));
  auto layer = LoadMtpLayer(files, **target);
  ASSERT_TRUE(layer) << layer.error().message;
  ASSERT_NE(*layer, nullptr);
  const std::vector<float> before = EmbeddedTokens(**target, kTokens);
  const std::vector<float> whole = PredictRows(**layer, **target, before, kTokens.size());
  EXPECT_EQ(PredictRows(**layer, **target, before, 1), whole);
  EXPECT_TRUE(std::ranges::all_of(whole, [](float logit) { return std::isfinite(logit); }));
  files->Remove(next + "nextn.eh_proj.weight");
  auto none = LoadMtpLayer(files, **target);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Families, DeclaredMtp,
                         testing::Values(MoeModel{"DeepSeek", test::MakeDeepSeek},
                                         MoeModel{"Glm4Moe", test::MakeGlm4Moe}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace quire::runner::models
