// Families with experts or latent attention by what sets them apart, and what they refuse. That they compute
// the right thing is tested against goldens in tests/golden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/testing/moe_models.h"

namespace quire::runner::models {
namespace {

using test::Edit;
using test::kMoeBase;
using test::kMoeLayers;
using test::LastLogits;
using test::LoadPatched;
using test::MoeModel;
using test::PatchedModelFiles;
using testing::HasSubstr;

// A model with its cache, run as an engine would.
class Running {
 public:
  explicit Running(std::unique_ptr<Model> model, int threads = 2)
      : model_(std::move(model)),
        pool_(threads),
        cache_(cache::HybridCache::Create(model_->cache_layout(), {.bytes = 32 << 20}).value()) {}

  cache::Sequence NewSequence() { return cache_->NewSequence(); }
  cache::HybridCache& cache() { return *cache_; }
  const Model& model() const { return *model_; }

  struct Part {
    cache::Sequence* sequence;
    std::vector<TokenId> tokens;
  };
  // The logits of every row, in one step.
  std::vector<float> Step(const std::vector<Part>& parts) {
    Batch batch{.tokens = {}, .row_begin = {0}, .logit_rows = {}};
    std::vector<cache::Append> appends;
    for (const Part& part : parts) {
      batch.tokens.insert(batch.tokens.end(), part.tokens.begin(), part.tokens.end());
      batch.row_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
      appends.push_back({.sequence = part.sequence, .tokens = static_cast<int32_t>(part.tokens.size())});
    }
    for (int32_t row = 0; row < batch.row_begin.back(); ++row) batch.logit_rows.push_back(row);
    std::vector<float> logits(batch.tokens.size() * static_cast<size_t>(model_->vocab_size()));
    auto step = cache_->Begin(appends).value();
    model_->Forward(batch, *step, pool_, logits);
    step->Commit();
    return logits;
  }
  // The logits of all tokens, `chunk` at a time; each step also has tokens of another sequence in it.
  std::vector<float> Chunked(const std::vector<TokenId>& tokens, size_t chunk, bool accompanied) {
    cache::Sequence sequence = NewSequence(), other = NewSequence();
    const auto width = static_cast<size_t>(model_->vocab_size());
    std::vector<float> all;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      const auto first = tokens.begin() + static_cast<ptrdiff_t>(at);
      std::vector<Part> parts = {
          {&sequence, {first, first + static_cast<ptrdiff_t>(std::min(chunk, tokens.size() - at))}}};
      if (accompanied) parts.insert(parts.begin(), {&other, {7, 8, 9}});
      const std::vector<float> logits = Step(parts);
      all.insert(all.end(), logits.begin() + static_cast<ptrdiff_t>(accompanied ? 3 * width : 0),
                 logits.end());
    }
    return all;
  }

 private:
  std::unique_ptr<Model> model_;
  ThreadPool pool_;
  std::unique_ptr<cache::HybridCache> cache_;
};

std::vector<TokenId> TokensUpTo(int count) {
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < count; ++i) tokens.push_back(i * 37 % 500);
  return tokens;
}

class MoeFamily : public testing::TestWithParam<MoeModel> {};

TEST_P(MoeFamily, ResultsAreBitIdenticalHoweverAPromptIsCut) {
  for (const api::KvType type : {api::KvType::kF32, api::KvType::kF16, api::KvType::kQ8_0}) {
    SCOPED_TRACE(api::NameOf(type));
    auto loaded = LoadPatched(kMoeBase, GetParam().make);
    ASSERT_TRUE(loaded) << loaded.error().message;
    ASSERT_TRUE((*loaded)->SetKvCacheType(type));
    Running run(*std::move(loaded));
    const std::vector<TokenId> tokens = TokensUpTo(75);
    const std::vector<float> whole = run.Chunked(tokens, tokens.size(), false);
    for (const float logit : whole) ASSERT_TRUE(std::isfinite(logit));
    for (const size_t chunk : {1, 7, 32, 64}) {
      EXPECT_EQ(run.Chunked(tokens, chunk, false), whole) << chunk;
      EXPECT_EQ(run.Chunked(tokens, chunk, true), whole) << chunk << ", accompanied";
    }
  }
}

TEST_P(MoeFamily, GoesOnFromASnapshotWithTheBitsOfOnePass) {
  auto loaded = LoadPatched(kMoeBase, GetParam().make);
  ASSERT_TRUE(loaded) << loaded.error().message;
  Running run(*std::move(loaded));
  const std::vector<TokenId> tokens = TokensUpTo(40);
  const std::vector<float> whole = run.Chunked(tokens, tokens.size(), false);
  const auto width = static_cast<size_t>(run.model().vocab_size());
  for (size_t at : {1, 9, 31, 32, 33}) {
    cache::Sequence first = run.NewSequence();
    run.Step({{&first, {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(at)}}});
    cache::Sequence second = run.cache().Fork(first, static_cast<cache::Position>(at)).value();
    const auto rest = run.Step({{&second, {tokens.begin() + static_cast<ptrdiff_t>(at), tokens.end()}}});
    EXPECT_TRUE(std::ranges::equal(rest, std::span(whole).subspan(at * width))) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MoeFamily, testing::ValuesIn(test::kMoeModels),
                         [](const auto& tested) { return std::string(tested.param.name); });

// 32 latent and 32 rotated numbers per token and layer, whatever the number of heads.
TEST(LatentAttention, CachesTheLatentAndTheRotatedKeyOnly) {
  for (const auto& [type, bytes] : {std::pair(api::KvType::kF32, 64U * 4),
                                    {api::KvType::kF16, 64U * 2},
                                    {api::KvType::kBF16, 64U * 2},
                                    {api::KvType::kQ8_0, 2U * 34}}) {
    auto model = LoadPatched(kMoeBase, test::MakeDeepSeek).value();
    ASSERT_TRUE(model->SetKvCacheType(type));
    const cache::Layout& layout = model->cache_layout();
    ASSERT_EQ(layout.groups.size(), 1U);
    EXPECT_EQ(cache::PageBytes(layout, 0), static_cast<size_t>(layout.page_tokens) * kMoeLayers * bytes);
  }
}

TEST(LatentAttention, RefusesBlocksThatHeadsDoNotFill) {
  auto model = LoadPatched(kMoeBase, [](PatchedModelFiles& files) {
                 test::MakeDeepSeek(files);
                 files.json["qk_rope_head_dim"] = 16;
                 files.json["qk_nope_head_dim"] = 32;
                 for (int layer = 0; layer < kMoeLayers; ++layer) {
                   const std::string attention = "model.layers." + std::to_string(layer) + ".self_attn.";
                   test::PutRandom(files, attention + "kv_a_proj_with_mqa.weight", {48, 64});
                   test::PutRandom(files, attention + "kv_b_proj.weight", {4 * 52, 32});
                 }
               }).value();
  EXPECT_TRUE(model->SetKvCacheType(api::KvType::kF16));
  const auto refused = model->SetKvCacheType(api::KvType::kQ8_0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "kv_cache_type");
}

// With one layer, what is cached of a token depends on it and its position alone.
TEST(LatentAttention, KeysAreRotatedToWhereARemovalMovesThem) {
  for (const auto& [type, tolerance] :
       {std::pair(api::KvType::kF32, 1e-4), {api::KvType::kF16, 2e-2}, {api::KvType::kQ8_0, 0.3}}) {
    SCOPED_TRACE(api::NameOf(type));
    auto model = LoadPatched(kMoeBase, [](PatchedModelFiles& files) {
                   test::MakeDeepSeek(files);
                   files.json["num_hidden_layers"] = 1;
                 }).value();
    ASSERT_TRUE(model->SetKvCacheType(type));
    Running run(std::move(model));
    cache::Sequence cut = run.NewSequence(), fresh = run.NewSequence();
    std::vector<TokenId> tokens = TokensUpTo(90);
    run.Step({{&cut, tokens}});
    ASSERT_TRUE(run.cache().RemoveRange(cut, 5, 26, run.model().key_rotation()));
    tokens.erase(tokens.begin() + 5, tokens.begin() + 26);
    run.Step({{&fresh, tokens}});
    const std::vector<float> actual = run.Step({{&cut, {7}}}), expected = run.Step({{&fresh, {7}}});
    for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance);
  }
}

// llama.cpp's converter once kept kv_b as one matrix, and later splits and transposes it.
TEST(LatentAttention, ReadsKeyAndValueMatricesTogetherOrApart) {
  const auto apart =
      LastLogits(test::kGgufBase, [](PatchedModelFiles& files) { test::MakeDeepSeekGguf(files, true); });
  EXPECT_EQ(
      LastLogits(test::kGgufBase, [](PatchedModelFiles& files) { test::MakeDeepSeekGguf(files, false); }),
      apart);
}

// With DeepSeek V2's values it computes what DeepSeek V2 does; each property of its own changes that.
TEST(Mistral4, DiffersFromDeepSeekV2InItsOwnProperties) {
  const auto with = [](const char* type, const test::Json& keys) {
    return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeMistral4(files);
      files.json["model_type"] = type;
      files.json.update(test::Json{{"n_group", 1}, {"topk_group", 1}, {"norm_topk_prob", false}});
      files.json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
      files.json.merge_patch(keys);
    });
  };
  const auto plain = with("mistral4", test::Json::object());
  EXPECT_EQ(with("deepseek_v2", test::Json::object()), plain);
  EXPECT_NE(with("mistral4", {{"norm_topk_prob", nullptr}}), plain);
  EXPECT_NE(with("mistral4", {{"rope_interleave", false}}), plain);
  const auto grown = [&](int context) {
    return with("mistral4",
                {{"rope_parameters",
                  {{"llama_4_scaling_beta", 0.5}, {"original_max_position_embeddings", context}}}});
  };
  EXPECT_NE(grown(2), plain);
  EXPECT_EQ(grown(4096), plain) << "only queries behind the context grow";
  const auto stretched = [&](const char* type, double share) {
    return with(type, {{"rope_parameters",
                        {{"rope_type", "yarn"},
                         {"factor", 8.0},
                         {"mscale", share},
                         {"mscale_all_dim", share},
                         {"original_max_position_embeddings", 4096}}}});
  };
  EXPECT_EQ(stretched("mistral4", 1), stretched("mistral4", 2));
  EXPECT_NE(stretched("deepseek_v2", 1), stretched("mistral4", 1));
}

// All groups kept is no groups; a scaling factor of the experts' sum changes what follows.
TEST(Mixture, GroupsAndScaleCount) {
  const auto with = [](const test::Json& keys) {
    return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeDeepSeek(files);
      files.json.update(keys);
    });
  };
  const auto plain = with({{"n_group", 1}, {"topk_group", 1}});
  EXPECT_EQ(with({{"n_group", 4}, {"topk_group", 4}}), plain);
  EXPECT_NE(with({{"n_group", 4}, {"topk_group", 2}}), plain);
  EXPECT_EQ(with({{"n_group", 1}, {"topk_group", 1}, {"routed_scaling_factor", 2.5}}), plain)
      << "the default";
  EXPECT_NE(with({{"n_group", 1}, {"topk_group", 1}, {"routed_scaling_factor", 1.0}}), plain);
}

// DeepSeek-V2-Lite has groups that its routing does not look at; dots.llm1 names the choice where others name
// the score.
TEST(Mixture, RoutersAreKnownByTheirPublishedNames) {
  const auto with = [](const test::Json& keys) {
    return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeDeepSeek(files);
      files.json.update(keys);
    });
  };
  const test::Json greedy = {
      {"model_type", "deepseek_v2"}, {"topk_method", "greedy"}, {"scoring_func", "softmax"}};
  test::Json grouped = greedy;
  grouped.update({{"n_group", 8}, {"topk_group", 3}});
  EXPECT_EQ(with(grouped), with(greedy));
  grouped.update({{"n_group", 4}, {"topk_group", 2}, {"topk_method", nullptr}});
  EXPECT_EQ(with(grouped), with(greedy)) << "the default";
  grouped["topk_method"] = "group_limited_greedy";
  EXPECT_NE(with(grouped), with(greedy));
  EXPECT_EQ(with({{"scoring_func", "noaux_tc"}}), with({{"scoring_func", "sigmoid"}}));
}

struct MoeRefusal {
  void (*make)(PatchedModelFiles& files);
  test::Json keys;
  const char* names;  // in the message
};

TEST(Mixture, RefusesByTheNameOfTheKey) {
  using test::MakeDeepSeek, test::MakeGlm4Moe, test::MakeGptOss, test::MakeQwen3Moe, test::MakeLlama4,
      test::MakeErnie45Moe, test::MakeHunyuanMoe, test::MakePhiMoe, test::MakeMiniMaxM2, test::MakeMistral4;
  const MoeRefusal refusals[] = {
      {MakeDeepSeek, {{"scoring_func", "tanh"}}, "scoring_func \"tanh\""},
      {MakeDeepSeek, {{"topk_method", "random"}}, "topk_method \"random\""},
      {MakeDeepSeek, {{"topk_method", "noaux_tc"}, {"scoring_func", "softmax"}}, "topk_method noaux_tc"},
      {MakeDeepSeek, {{"n_group", 3}, {"topk_group", 2}}, "n_group"},
      {MakeDeepSeek, {{"n_group", 8}, {"topk_group", 2}}, "n_group"},
      {MakeDeepSeek, {{"kv_lora_rank", 0}}, "kv_lora_rank"},
      {MakeDeepSeek, {{"qk_rope_head_dim", 31}}, "31 rotated"},
      {MakeDeepSeek, {{"hidden_act", "relu"}}, "hidden_act: \"relu\""},
      {MakeDeepSeek, {{"rope_parameters", {{"rope_type", "sometimes"}}}}, "\"sometimes\""},
      {MakeDeepSeek, {{"rope_parameters", {{"rope_type", "dynamic"}}}}, "rope_parameters/factor"},
      {MakeQwen3Moe, {{"mlp_only_layers", {99}}}, "mlp_only_layers"},
      {MakeQwen3Moe, {{"num_experts_per_tok", 9}}, "num_experts_per_tok"},
      {MakeQwen3Moe, {{"decoder_sparse_step", 0}}, "decoder_sparse_step"},
      {MakeGlm4Moe, {{"routed_scaling_factor", -1}}, "routed_scaling_factor"},
      {MakeGlm4Moe, {{"n_shared_experts", -1}}, "n_shared_experts"},
      {MakeGptOss, {{"hidden_act", "gelu"}}, "hidden_act"},
      {MakeDeepSeek, {{"model_type", "deepseek_v2"}, {"norm_topk_prob", true}}, "norm_topk_prob"},
      {MakeDeepSeek, {{"mlp_layer_types", {"dense", "sparse", "half"}}}, "mlp_layer_types[2]"},
      {MakeLlama4,
       {{"layer_types", {"sliding_attention", "full_attention", "full_attention"}}},
       "layer_types"},
      {MakeLlama4, {{"moe_layers", {3}}}, "moe_layers"},
      {MakeMistral4, {{"topk_method", "noaux_tc"}}, "topk_method"},
      {MakeMistral4, {{"qk_rope_head_dim", 16}}, "partial_rotary_factor"},
      {MakeErnie45Moe, {{"moe_norm_min", 0.5}}, "moe_norm_min"},
      {MakeErnie45Moe, {{"compression_ratio", 2.0}}, "compression_ratio"},
      {MakeHunyuanMoe, {{"moe_topk", {2, 1, 2}}}, "num_experts_per_tok"},
      {MakeHunyuanMoe, {{"use_cla", true}}, "use_cla"},
      {MakePhiMoe, {{"num_experts_per_tok", 3}}, "num_experts_per_tok"},
      {MakeMiniMaxM2, {{"attn_type_list", {1, 0, 1}}}, "attn_type_list"},
      {MakeMiniMaxM2, {{"qk_norm_type", "per_head"}}, "qk_norm_type"},
      {MakeGptOss, {{"swiglu_limit", 0}}, "swiglu_limit"},
      {MakeGptOss,
       {{"layer_types", {"chunked_attention", "full_attention", "full_attention"}}},
       "layer_types[0]"},
  };
  for (const MoeRefusal& refusal : refusals) {
    const auto model = LoadPatched(kMoeBase, [&](PatchedModelFiles& files) {
      refusal.make(files);
      files.json.update(refusal.keys);
    });
    ASSERT_FALSE(model) << refusal.names;
    EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(model.error().message, HasSubstr(refusal.names));
  }
}

// In every layer, as transformers has it, where Qwen3 leaves out the first max_window_layers.
TEST(Qwen3Moe, AWindowIsForAllLayers) {
  const auto last = [](const test::Json& keys, TokenId first) {
    Running run(LoadPatched(kMoeBase, [&](PatchedModelFiles& files) {
                  test::MakeQwen3Moe(files);
                  files.json.update(keys);
                }).value());
    std::vector<TokenId> tokens = TokensUpTo(12);  // three layers of a window of 4 reach 9 tokens back
    tokens.front() = first;
    const std::vector<float> logits = run.Chunked(tokens, tokens.size(), false);
    return std::vector(logits.end() - 512, logits.end());
  };
  test::Json keys = {{"sliding_window", 4}, {"max_window_layers", 28}};
  EXPECT_NE(last(keys, 1), last(keys, 2));
  keys["use_sliding_window"] = true;
  EXPECT_EQ(last(keys, 1), last(keys, 2));
}

TEST(GptOss, NeedsNoBiasesOfAttention) {
  const auto with = [](bool biases) {
    return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeGptOss(files);
      files.json["attention_bias"] = biases;
      for (int layer = 0; layer < kMoeLayers; ++layer) {
        for (const char* part : {"q", "k", "v", "o"}) {
          const std::string name =
              "model.layers." + std::to_string(layer) + ".self_attn." + part + "_proj.bias";
          const std::vector<int64_t> shape = files.Edit(name).shape;
          files.Remove(name);
          if (biases) files.AddF32(name, shape, 0);
        }
      }
    });
  };
  EXPECT_EQ(with(false), with(true));
}

// One expert is the feed-forward layer that has its matrices.
TEST(Mixture, ExpertsHaveTheActivationOfTheConfiguration) {
  const auto with = [](const char* activation, bool dense) {
    return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeQwen3Moe(files);
      files.json.update(test::Json{{"hidden_act", activation},
                                   {"num_experts", 1},
                                   {"num_experts_per_tok", 1},
                                   {"norm_topk_prob", true},
                                   {"intermediate_size", files.json["moe_intermediate_size"]}});
      if (dense) files.json["mlp_only_layers"] = {0, 1, 2};
      for (int layer = 0; layer < kMoeLayers; ++layer) {
        const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
        test::PutRandom(files, mlp + "gate.weight", {1, 64});
        for (const char* part : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
          files.Remove(mlp + part);
          files.AddCopy(mlp + "experts.0." + part, mlp + part);
        }
      }
    });
  };
  EXPECT_EQ(with("gelu", false), with("gelu", true));
  EXPECT_NE(with("gelu", false), with("silu", false));
}

// What lies before a token's chunk reaches it through layers without chunks only.
TEST(Llama4, ATokenSeesItsChunkAlone) {
  const auto last = [](int chunk, bool chunked, TokenId first) {
    Running run(LoadPatched(kMoeBase, [&](PatchedModelFiles& files) {
                  test::MakeLlama4(files);
                  files.json["attention_chunk_size"] = chunk;
                  files.json["no_rope_layers"] = {1, 1, 1};
                  if (!chunked) files.json["layer_types"] = std::vector<std::string>(3, "full_attention");
                }).value());
    std::vector<TokenId> tokens = TokensUpTo(49);  // the last one begins a chunk of 24
    tokens.front() = first;
    return run.Chunked(tokens, 1, false);
  };
  const auto end = [](const std::vector<float>& logits) {
    return std::vector(logits.end() - 512, logits.end());
  };
  EXPECT_EQ(end(last(24, true, 1)), end(last(24, true, 2)));
  EXPECT_NE(end(last(24, false, 1)), end(last(24, false, 2)));
  EXPECT_EQ(last(49, true, 1), last(24, false, 1)) << "one chunk is full attention";
}

// Its keys cannot be moved: the weights of their norm are between two rotations.
TEST(Hunyuan, CachedKeysStayWhereTheyAre) {
  EXPECT_FALSE(LoadPatched(kMoeBase, test::MakeHunyuanMoe).value()->key_rotation());
  EXPECT_TRUE(LoadPatched(kMoeBase, test::MakeLlama4).value()->key_rotation());
}

// Transposed floats would be quantized along the wrong dimension.
TEST(GptOss, RefusesExpertsThatWereQuantizedAcrossTheirInputs) {
  const auto model = LoadPatched(kMoeBase, [](PatchedModelFiles& files) {
    test::MakeGptOss(files);
    files.Edit("model.layers.0.mlp.experts.gate_up_proj").type = weights::DataType::kQ8_0;
  });
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message,
              HasSubstr("model.layers.0.mlp.experts.gate_up_proj is quantized across"));
}

// A softmax with a sink takes part of the weight from every key.
TEST(GptOss, SinksCount) {
  const auto with = [](float sink) {
    return LastLogits(kMoeBase, [=](PatchedModelFiles& files) {
      test::MakeGptOss(files);
      for (int layer = 0; layer < kMoeLayers; ++layer) {
        const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.sinks";
        files.Remove(name);
        files.AddF32(name, {4}, sink);
      }
    });
  };
  EXPECT_NE(with(0), with(3));
  EXPECT_EQ(with(-1000), with(-2000)) << "no share at all";
}

}  // namespace
}  // namespace quire::runner::models
