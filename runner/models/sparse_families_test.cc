// Families that choose what they see, by what sets them apart, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/layout.h"
#include "runner/models/model.h"
#include "runner/models/testing/moe_models.h"
#include "runner/models/testing/sparse_models.h"

namespace quire::runner::models {
namespace {

using test::kMoeBase;
using test::LoadPatched;
using test::PatchedModelFiles;
using testing::HasSubstr;

TEST(SparseFamilies, CacheARowOfFloatsForEachIndexKey) {
  auto model = LoadPatched(kMoeBase, test::MakeGlmMoeDsa).value();
  ASSERT_TRUE(model->SetKvCacheType(api::KvType::kF16));
  const cache::Layout& layout = model->cache_layout();
  ASSERT_EQ(layout.groups.size(), 2U);
  EXPECT_EQ(layout.groups[0].element, cache::ElementType::kF16);
  const cache::AttentionGroup& index = layout.groups[1];
  EXPECT_EQ(index.element, cache::ElementType::kF32) << "a rounded score may choose another token";
  EXPECT_EQ(index.layers, 2) << "the second layer has none of its own";
  EXPECT_EQ(index.head_dim, 40);
}

std::vector<float> LastOfSparse(void (*make)(PatchedModelFiles&), const test::Json& keys) {
  return test::LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
    make(files);
    files.json.merge_patch(keys);
  });
}

// With as many places as there are tokens it is DeepSeek V3.
TEST(SparseFamilies, AChoiceOfAllIsNoChoice) {
  const auto dense = LastOfSparse(test::MakeDeepSeek, test::Json::object());
  EXPECT_EQ(LastOfSparse(test::MakeDeepSeekV32, {{"index_topk", 4096}}), dense);
  EXPECT_NE(LastOfSparse(test::MakeDeepSeekV32, {{"index_topk", 2}}), dense);
}

TEST(SparseFamilies, PatternsOfSharedIndexersAreEqual) {
  const auto listed = LastOfSparse(test::MakeGlmMoeDsa, {{"index_topk", 2}});
  const auto with = [](test::Json keys) {
    keys["indexer_types"] = nullptr;
    keys["index_topk"] = 2;
    return LastOfSparse(test::MakeGlmMoeDsa, keys);
  };
  EXPECT_EQ(with({{"index_topk_pattern", "FSF"}}), listed);
  EXPECT_EQ(with({{"index_topk_pattern", {"full", "shared", "full"}}}), listed);
  EXPECT_EQ(with({{"index_topk_freq", 2}, {"index_skip_topk_offset", 1}}), listed);
  EXPECT_NE(with({{"index_topk_freq", 1}}), listed);
}

struct SparseRefusal {
  void (*make)(PatchedModelFiles& files);
  test::Json keys;
  const char* names;  // in the message
};

TEST(SparseFamilies, RefuseByTheNameOfTheKey) {
  using test::MakeDeepSeekV32, test::MakeGlmMoeDsa, test::MakeMiniMaxM3;
  const SparseRefusal refusals[] = {
      {MakeDeepSeekV32, {{"index_topk", 0}}, "index_topk"},
      {MakeDeepSeekV32, {{"index_head_dim", 16}}, "index_head_dim"},
      {MakeDeepSeekV32, {{"layer_types", {"indexed_attention", "full_attention", "x"}}}, "layer_types"},
      {MakeGlmMoeDsa, {{"indexer_types", {"shared", "full", "full"}}}, "the first layer"},
      {MakeGlmMoeDsa, {{"indexer_types", {"full", "half", "full"}}}, "indexer_types[1]"},
      {MakeGlmMoeDsa, {{"indexer_types", nullptr}, {"index_topk_pattern", "FFX"}}, "index_topk_pattern"},
      {MakeMiniMaxM3, {{"index_n_heads", 4}}, "4 index heads for 2 KV heads"},
      {MakeMiniMaxM3, {{"swiglu_limit", 0}}, "swiglu_limit"},
      {MakeMiniMaxM3, {{"sparse_attention_config", {{"sparse_score_type", "mean"}}}}, "sparse_score_type"},
      {MakeMiniMaxM3, {{"sparse_attention_config", {{"sparse_init_block", 1}}}}, "sparse_init_block"},
  };
  for (const SparseRefusal& refusal : refusals) {
    const auto model = LoadPatched(kMoeBase, [&](PatchedModelFiles& files) {
      refusal.make(files);
      files.json.update(refusal.keys);
    });
    ASSERT_FALSE(model) << refusal.names;
    EXPECT_THAT(model.error().message, HasSubstr(refusal.names));
  }
}

}  // namespace
}  // namespace quire::runner::models
