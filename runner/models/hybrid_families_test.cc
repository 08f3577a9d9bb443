// Families with state-space layers by what sets them apart, and what they refuse. That they compute the right
// thing is tested against goldens in tests/golden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/testing/hybrid_models.h"
#include "runner/weights/metadata_only.h"

namespace quire::runner::models {
namespace {

using test::kMoeBase;
using test::LoadPatched;
using test::PatchedModelFiles;
using testing::HasSubstr;

using Tokens = std::vector<TokenId>;

class HybridFamily : public testing::TestWithParam<test::MoeModel> {
 protected:
  void SetUp() override {
    auto loaded = LoadPatched(kMoeBase, GetParam().make);
    ASSERT_TRUE(loaded) << loaded.error().message;
    model_ = *std::move(loaded);
    cache_ = cache::HybridCache::Create(model_->cache_layout(), {.bytes = 32 << 20}).value();
    for (TokenId i = 0; i < 40; ++i) tokens_.push_back(i * 37 % 500);
  }

  struct Part {
    cache::Sequence* sequence;
    Tokens tokens;
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
    std::vector<float> logits(batch.tokens.size() * width());
    auto step = cache_->Begin(appends).value();
    model_->Forward(batch, *step, pool_, logits);
    step->Commit();
    return logits;
  }
  size_t width() const { return static_cast<size_t>(model_->vocab_size()); }
  Tokens Range(size_t begin, size_t end) const {
    return {tokens_.begin() + static_cast<ptrdiff_t>(begin), tokens_.begin() + static_cast<ptrdiff_t>(end)};
  }

  std::unique_ptr<Model> model_;
  ThreadPool pool_{2};
  std::unique_ptr<cache::HybridCache> cache_;
  Tokens tokens_;
};

TEST_P(HybridFamily, ResultsAreBitIdenticalHoweverAPromptIsCut) {
  cache::Sequence alone = cache_->NewSequence();
  const std::vector<float> whole = Step({{&alone, tokens_}});
  for (const float logit : whole) ASSERT_TRUE(std::isfinite(logit));
  for (const size_t chunk : {1, 7, 32}) {
    cache::Sequence sequence = cache_->NewSequence(), other = cache_->NewSequence();
    std::vector<float> all;
    for (size_t at = 0; at < tokens_.size(); at += chunk) {
      const std::vector<float> logits =
          Step({{&other, {7, 8, 9}}, {&sequence, Range(at, std::min(at + chunk, tokens_.size()))}});
      all.insert(all.end(), logits.begin() + static_cast<ptrdiff_t>(3 * width()), logits.end());
    }
    EXPECT_EQ(all, whole) << "chunks of " << chunk;
  }
}

TEST_P(HybridFamily, AForkAndAPartlyAcceptedDraftGoOnLikeOnePass) {
  cache::Sequence alone = cache_->NewSequence(), first = cache_->NewSequence();
  const std::vector<float> whole = Step({{&alone, tokens_}});
  Step({{&first, Range(0, 20)}});
  cache::Sequence fork = cache_->Fork(first, 20).value();
  const std::vector<float> rest = Step({{&fork, Range(20, 40)}});
  EXPECT_TRUE(std::ranges::equal(rest, std::span(whole).subspan(20 * width())));
  {
    auto speculation = cache_->Speculate(first).value();
    Tokens draft = Range(20, 25);
    draft.insert(draft.end(), {1, 2, 3});
    Step({{&speculation.sequence(), draft}});
    const auto replay = [&](size_t layer, std::byte* slot, std::span<const std::byte> inputs,
                            int32_t tokens) { model_->Replay(layer, slot, inputs, tokens, pool_); };
    ASSERT_TRUE(speculation.Commit(5, replay));
  }
  const std::vector<float> behind = Step({{&first, Range(25, 40)}});
  EXPECT_TRUE(std::ranges::equal(behind, std::span(whole).subspan(25 * width())));
}

INSTANTIATE_TEST_SUITE_P(Models, HybridFamily, testing::ValuesIn(test::kHybridModels),
                         [](const auto& tested) { return std::string(tested.param.name); });

// transformers stores them beside the weights and computes with what is stored. Other slopes are refused
// before weights are read, so `quire create` refuses them, too.
TEST(Hybrids, MiniMaxHasTheSlopesOfTheFormula) {
  const auto with = [](float share, bool metadata_only) {  // of what a single head has in the first layer
    auto files = std::make_shared<PatchedModelFiles>(kMoeBase);
    test::MakeMiniMax(*files);
    const int width = files->json["num_attention_heads"].get<int>() * files->json["head_dim"].get<int>();
    files->json["num_attention_heads"] = 1;
    files->json["num_key_value_heads"] = 1;
    files->json["head_dim"] = width;
    files->AddF32("model.layers.0.self_attn.slope_rate", {1, 1, 1}, share / 256);
    return metadata_only ? LoadModel(weights::MetadataOnly(std::move(files)).value())
                         : LoadModel(std::move(files));
  };
  for (const bool metadata_only : {false, true}) {
    const auto other = with(1.5F, metadata_only);
    ASSERT_FALSE(other);
    EXPECT_NE(other.error().message.find("slope_rate"), std::string::npos) << other.error().message;
    const auto rounded = with(1.003F, metadata_only);
    if (!rounded) {
      EXPECT_EQ(rounded.error().message.find("slope_rate"), std::string::npos) << rounded.error().message;
    }
  }
}

TEST(Hybrids, LayersHaveTheStatesOfTheirParts) {
  const auto falcon = LoadPatched(kMoeBase, test::MakeFalconH1).value();
  EXPECT_EQ(falcon->cache_layout().groups.size(), 1U);
  EXPECT_EQ(falcon->cache_layout().groups[0].layers, 2) << "each layer has keys";
  EXPECT_EQ(falcon->cache_layout().recurrent.size(), 2U) << "and a state";
  const auto nemotron = LoadPatched(kMoeBase, test::MakeNemotronH).value();
  ASSERT_EQ(nemotron->cache_bindings().size(), 3U) << "feed-forward layers have none";
  EXPECT_EQ(nemotron->cache_bindings()[2].decoder_layer, 4);
  const auto zamba = LoadPatched(kMoeBase, test::MakeZamba2).value();
  EXPECT_EQ(zamba->cache_layout().groups[0].layers, 3) << "two blocks of weights, three uses";
  EXPECT_EQ(zamba->cache_layout().recurrent.size(), 5U);
  const auto minimax = LoadPatched(kMoeBase, test::MakeMiniMax).value();
  EXPECT_EQ(minimax->cache_layout().recurrent[0].conv_tail, 0) << "a state without a convolution";
  const auto rwkv = LoadPatched(kMoeBase, test::MakeRwkv7).value();
  EXPECT_EQ(rwkv->cache_layout().recurrent[0].conv_tail, 1) << "token shifts: one column";
  EXPECT_EQ(rwkv->cache_layout().recurrent[0].conv_dim, 128) << "of both parts of a layer";
  const auto plamo = LoadPatched(kMoeBase, test::MakePlamo2).value();
  EXPECT_EQ(plamo->cache_layout().groups[0].window, 16);
  EXPECT_EQ(plamo->cache_layout().recurrent.size(), 2U);
  EXPECT_EQ(plamo->cache_layout().recurrent[0].conv_dim, 96) << "B and C are not convolved";
  const auto mamba = LoadPatched(kMoeBase, test::MakeMamba2).value();
  EXPECT_TRUE(mamba->cache_layout().groups.empty());
  EXPECT_EQ(mamba->cache_layout().recurrent[0].delta_heads, 8);
}

struct Refused {
  void (*make)(PatchedModelFiles& files);
  test::Json keys;
  const char* names;  // in the message
};

TEST(Hybrids, RefuseByTheNameOfTheKey) {
  using test::MakeFalconH1, test::MakeGraniteHybrid, test::MakeJamba, test::MakeKimiLinear, test::MakeMamba2,
      test::MakeMiniMax, test::MakeNemotronH, test::MakeOlmoHybrid, test::MakeRwkv7, test::MakeZamba2;
  const Refused refusals[] = {
      {MakeMamba2, {{"time_step_limit", {0.5, 0.1}}}, "time_step_limit"},
      {MakeMamba2, {{"time_step_limit", 3}}, "time_step_limit"},
      {MakeMamba2, {{"rms_norm", false}}, "rms_norm"},
      {MakeMamba2, {{"norm_before_gate", true}}, "norm_before_gate"},
      {MakeMamba2, {{"n_groups", 3}}, "3 groups"},
      {MakeMamba2, {{"head_dim", 24}}, "heads of 24"},
      {MakeMamba2, {{"hidden_act", "gelu_new"}}, "hidden_act"},
      {MakeMamba2, {{"state_size", 0}}, "state_size"},
      {MakeMamba2, {{"attn_layer_idx", {1}}}, "attn_layer_idx"},
      {MakeGraniteHybrid, {{"layer_types", {"mamba", "linear", "mamba"}}}, "layer_types"},
      {MakeGraniteHybrid, {{"position_embedding_type", "alibi"}}, "position_embedding_type"},
      {MakeGraniteHybrid, {{"normalization_function", "layernorm"}}, "normalization_function"},
      {MakeGraniteHybrid, {{"residual_multiplier", -1}}, "residual_multiplier"},
      {MakeFalconH1, {{"ssm_multipliers", {1, 2}}}, "ssm_multipliers"},
      {MakeFalconH1, {{"mamba_use_mlp", false}}, "mamba_use_mlp"},
      {MakeFalconH1, {{"mamba_d_ssm", 70}}, "70 channels"},
      {MakeNemotronH, {{"hybrid_override_pattern", "ME*-X"}}, "\"X\""},
      {MakeNemotronH, {{"hybrid_override_pattern", "ME*"}}, "hybrid_override_pattern"},
      {MakeNemotronH, {{"mlp_hidden_act", "silu"}}, "mlp_hidden_act"},
      {MakeNemotronH, {{"mamba_proj_bias", true}}, "mamba_proj_bias"},
      {MakeNemotronH, {{"sliding_window", 64}}, "sliding_window"},
      {MakeNemotronH, {{"time_step_limit", {0.0, 0.5}}}, "time_step_limit"},
      {MakeJamba, {{"mamba_dt_rank", "some"}}, "mamba_dt_rank"},
      {MakeJamba, {{"mamba_inner_layernorms", false}}, "mamba_inner_layernorms"},
      {MakeJamba, {{"mamba_d_conv", 0}}, "mamba_d_conv"},
      {MakeKimiLinear, {{"mla_use_nope", false}}, "mla_use_nope"},
      {MakeKimiLinear, {{"moe_router_activation_func", "softmax"}}, "moe_router_activation_func"},
      {MakeKimiLinear, {{"num_nextn_predict_layers", 1}}, "num_nextn_predict_layers"},
      {MakeKimiLinear,
       {{"linear_attn_config", {{"full_attn_layers", {2}}, {"kda_layers", {1}}}}},
       "linear_attn_config"},
      {MakeKimiLinear,
       {{"linear_attn_config", {{"full_attn_layers", {2}}, {"kda_layers", {1, 4}}}}},
       "kda_layers"},
      {MakeMiniMax, {{"layer_types", {"linear_attention", "mamba", "full_attention"}}}, "layer_types"},
      {MakeMiniMax, {{"mlp_beta_factor", 0}}, "mlp_beta_factor"},
      {MakeMiniMax, {{"shared_intermediate_size", {0, 64}}}, "shared_intermediate_size"},
      {MakeMiniMax, {{"model_type", "minimax_text_01"}}, "postnorm"},
      {MakeMiniMax, {{"attention_bias", true}}, "attention_bias"},
      {MakeOlmoHybrid, {{"layer_types", {"linear_attention", "mamba", "full_attention"}}}, "layer_types"},
      {MakeOlmoHybrid, {{"linear_num_value_heads", 5}}, "linear_num_value_heads"},
      {MakeOlmoHybrid, {{"hidden_act", "gelu_new"}}, "hidden_act"},
      {MakeOlmoHybrid, {{"sliding_window", 64}}, "sliding_window"},
      {test::MakePlamo2, {{"mamba_enabled", false}}, "mamba_enabled"},
      {test::MakePlamo2, {{"full_attention_idx", {3}}}, "full_attention_idx"},
      {test::MakePlamo2, {{"mamba_num_heads", 5}}, "mixer."},
      {test::MakePlamo2, {{"hidden_size_per_head", 15}}, "odd"},
      {test::MakePlamo2, {{"some_gate", 2}}, "some_gate"},
      {MakeRwkv7, {{"attn", {{"layers", {1}}, {"num_heads", 4}}}}, "attn"},
      {MakeRwkv7, {{"head_dim", 24}}, "heads of 24"},
      {MakeRwkv7, {{"hidden_act", "silu"}}, "hidden_act"},
      {MakeRwkv7, {{"norm_first", false}}, "norm_first"},
      {MakeRwkv7, {{"value_dim", {64, 128, 64}}}, "value_dim"},
      {MakeRwkv7, {{"a_low_rank_dim", 7}}, "a_lora"},
      {MakeRwkv7, {{"decay_scale", 2}}, "decay_scale"},
      {MakeZamba2,
       {{"layers_block_type", {"hybrid", "mamba", "attention", "mamba", "mamba"}}},
       "layers_block_type"},
      {MakeZamba2, {{"use_long_context", true}}, "use_long_context"},
      {MakeZamba2, {{"time_step_limit", {0.0, 0.5}}}, "time_step_limit"},
      {MakeZamba2, {{"num_mem_blocks", 0}}, "num_mem_blocks"},
      {MakeZamba2, {{"hidden_act", "relu"}}, "hidden_act"},
      {MakeZamba2, {{"ft_lora", true}}, "ft_lora"},
  };
  for (const Refused& refusal : refusals) {
    const auto model = LoadPatched(kMoeBase, [&](PatchedModelFiles& files) {
      refusal.make(files);
      files.json.update(refusal.keys);
    });
    ASSERT_FALSE(model) << refusal.names;
    EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(model.error().message, HasSubstr(refusal.names));
  }
}

}  // namespace
}  // namespace quire::runner::models
