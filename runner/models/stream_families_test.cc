// Families whose residual has several streams: what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/testing/patched_model_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::LastLogits;
using test::LoadPatched;
using test::PatchedModelFiles;
using testing::AllOf;
using testing::HasSubstr;

struct StreamRefusal {
  const char* key;
  Json value;
  const char* message;
};

void ExpectStreamRefusals(const std::filesystem::path& model, const std::vector<StreamRefusal>& refusals) {
  const auto plain = LoadPatched(model, [](PatchedModelFiles&) {});
  ASSERT_TRUE(plain) << plain.error().message;
  for (const StreamRefusal& refusal : refusals) {
    SCOPED_TRACE(refusal.key);
    const auto loaded =
        LoadPatched(model, [&](PatchedModelFiles& files) { files.json[refusal.key] = refusal.value; });
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, AllOf(HasSubstr("the/file"), HasSubstr(refusal.message)));
  }
}

TEST(Qwen4Exp, RefusesWhatItDoesNotCompute) {
  QUIRE_FIND_OR_SKIP(directory, "models/qwen4_exp");
  ExpectStreamRefusals(directory, {{"hc_count", 1, "hc_count is 1"},
                                   {"hc_count", 17, "hc_count is 17"},
                                   {"hc_lowrank", 15, "has the shape [16, 256]"},
                                   {"indexer_budget", 18, "not whole blocks of 4"},
                                   {"indexer_kv_heads", 2, "indexer_kv_heads: only 1 is supported"},
                                   {"indexer_head_dim", 4, "less than the 8 channels that are rotated"},
                                   {"indexer_compress_ratio", 0, "is 0 for layer 1"},
                                   {"ple_layer_ids", {2}, "ple_layer_ids has 2, which is no layer"},
                                   {"ple_embed_dim", 63, "63 numbers do not share 4 hashes"},
                                   {"ngram_size", 2, "the n-grams' hashes are not 2 multipliers"},
                                   {"split_ngram_parts", 3, "has no rows"},
                                   {"output_gate_type", "tanh", "output_gate_type: \"tanh\""},
                                   {"num_experts", 0, "lacks intermediate_size"},
                                   {"another_key", 3, "the configuration has another_key"}});
}

// A converter that lost the sizes of blocks writes a file that other programs run as a dense model.
TEST(Qwen4Exp, RefusesAFileWithoutTheSizesOfBlocks) {
  QUIRE_FIND_OR_SKIP(gguf, "gguf/qwen4_exp.f16.gguf");
  ExpectStreamRefusals(gguf, {{"qwen4exp.attention.compress_ratios",
                               {0, 0, 0, 0, 0},
                               "compress_ratios is 0 for layer 1, which chooses blocks of tokens"}});
}

TEST(DeepSeekV4, RefusesWhatItDoesNotCompute) {
  QUIRE_FIND_OR_SKIP(directory, "models/deepseek_v4");
  ExpectStreamRefusals(
      directory,
      {{"norm_topk_prob", false, "norm_topk_prob: only true"},
       {"n_shared_experts", 2, "n_shared_experts: only 1"},
       {"num_key_value_heads", 2, "num_key_value_heads: only 1"},
       {"scoring_func", "tanh", "scoring_func \"tanh\""},
       {"o_groups", 3, "4 heads are not 3 groups"},
       {"layer_types", {"sliding_attention"}, "layer_types is not a list with an entry for each layer"},
       {"qk_rope_head_dim", "x", "qk_rope_head_dim is"},
       {"index_head_dim", 8, "less than the 16 channels that are rotated"},
       {"vocab_size", 511, "embed.weight has the shape [512, 64]"},
       {"num_experts_per_tok", 3, "tid2eid is missing or no table [512, 3] of integers"},
       {"attention_bias", true, "attention_bias: only false"}});
}

// As published: a rate for each layer, and YaRN's numbers in rope_scaling.
TEST(DeepSeekV4, ReadsTheScheduleInEitherSpelling) {
  QUIRE_FIND_OR_SKIP(directory, "models/deepseek_v4_128");
  const std::vector<float> published = LastLogits(directory, [](PatchedModelFiles& files) {
    for (const char* key :
         {"layer_types", "compress_rates", "mlp_layer_types", "partial_rotary_factor", "rope_parameters"}) {
      files.json.erase(key);
    }
    files.json["compress_ratios"].push_back(0);  // of a layer that predicts further tokens
    files.json["rope_scaling"] = {{"type", "yarn"},
                                  {"factor", 8},
                                  {"beta_fast", 32},
                                  {"beta_slow", 1},
                                  {"original_max_position_embeddings", 64}};
    files.json["topk_method"] = "noaux_tc";
    files.json["expert_dtype"] = "bf16";
  });
  EXPECT_EQ(published, LastLogits(directory, [](PatchedModelFiles&) {}));
  EXPECT_NE(published, LastLogits(directory, [](PatchedModelFiles& files) {
              files.json["rope_parameters"]["compress"]["factor"] = 4;
            }));
}

TEST(HyV4, RefusesWhatItDoesNotCompute) {
  QUIRE_FIND_OR_SKIP(directory, "models/hy_v4");
  ExpectStreamRefusals(directory, {{"q_lora_rank", Json(), "q_lora_rank"},
                                   {"swiglu_limit", -1, "swiglu_limit is -1"},
                                   {"hc_mult", 1, "hc_mult is 1"},
                                   {"layer_types",
                                    {"full_attention", "full_attention", "full_attention", "full_attention"},
                                    "layer_types: only indexed_attention"},
                                   {"index_topk", 0, "index_topk is 0"}});
}

}  // namespace
}  // namespace quire::runner::models
