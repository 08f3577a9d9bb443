// What the newest families refuse, and which spellings of a configuration say the same. Their checkpoints are
// in the third set of fixtures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "runner/models/testing/patched_model_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::models {
namespace {

using test::Edit;
using test::Json;
using test::LastLogits;
using test::LoadPatched;
using test::PatchedModelFiles;
using testing::HasSubstr;

struct RefusedConfiguration {
  const char* family;
  const char* patch;  // merged into config.json
  const char* reason;
};

void PrintTo(const RefusedConfiguration& refused, std::ostream* out) {
  *out << refused.family << " " << refused.patch;
}

const RefusedConfiguration kRefused[] = {
    {"afmoe", R"({"n_group": 2})", "n_group: only 1 is supported"},
    {"afmoe", R"({"route_norm": false})", "route_norm: only true is supported"},
    {"afmoe", R"({"score_func": "softmax"})", "score_func: only sigmoid is supported"},
    {"afmoe", R"({"attention_scale": 3})", "attention_scale, which is not supported"},
    {"bailing_hybrid", R"({"no_kda_lora": false})", "no_kda_lora: only true is supported"},
    {"bailing_hybrid", R"({"kda_lower_bound": 5})", "kda_lower_bound is not a negative number"},
    {"bailing_hybrid", R"({"score_function": "softmax"})", "score_function: only sigmoid is supported"},
    {"cohere2_moe", R"({"expert_selection_fn": "tanh"})", "expert_selection_fn is neither"},
    {"cohere2_moe", R"({"shared_expert_combination_strategy": "max"})", "combination_strategy is neither"},
    {"gemma3n", R"({"activation_sparsity_pattern": [0.5, 1.0, 0, 0, 0, 0, 0]})", "has an entry outside"},
    {"gemma3n", R"({"num_kv_shared_layers": 6})", "no earlier layer of the type has keys"},
    {"granite_swa", R"({"no_rope_layers": [1, 1, 1, 1, 1]})", "contradict each other"},
    {"granite_swa", R"({"layer_rope_theta": [1, 2]})", "is not a list of one number per layer"},
    {"laguna", R"({"moe_apply_router_weight_on_input": true})", "weight_on_input: only false"},
    {"laguna", R"({"num_attention_heads_per_layer": [4, 4, 5, 4, 4]})", "cannot share"},
    {"longcat_flash", R"({"zero_expert_type": "copy"})", "zero_expert_type: only identity is supported"},
    {"longcat_flash", R"({"router_bias": true})", "router_bias: only false is supported"},
    {"mimo_v2", R"({"swa_head_dim": 32})", "swa_head_dim: only 24 is supported"},
    {"minicpm3", R"({"scale_emb": 0})", "scale_emb is 0"},
};

class RefusedConfigurationTest : public testing::TestWithParam<RefusedConfiguration> {};

TEST_P(RefusedConfigurationTest, NamesTheKey) {
  QUIRE_FIND_OR_SKIP(path, std::string("models/") + GetParam().family);
  ASSERT_TRUE(LoadPatched(path.string(), [](PatchedModelFiles&) {}));
  const auto model = LoadPatched(
      path.string(), [](PatchedModelFiles& files) { files.json.update(Json::parse(GetParam().patch)); });
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(Newest, RefusedConfigurationTest, testing::ValuesIn(kRefused));

// As the published configuration has it: the window without the query's own token, layers as truth values,
// bases of the rotation outside of rope_parameters.
TEST(MimoV2, HasTwoSpellings) {
  QUIRE_FIND_OR_SKIP(path, "models/mimo_v2");
  const auto published = [](PatchedModelFiles& files) {
    for (const char* key : {"layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps"}) {
      files.json.erase(key);
    }
    files.json["sliding_window_size"] = 7;
    files.json["sliding_window"] = 7;
  };
  const Edit same = [](PatchedModelFiles&) {};
  EXPECT_EQ(LastLogits(path.string(), published), LastLogits(path.string(), same));
}

// One base for all layers is what the list of the same base says.
TEST(GraniteSwa, TakesTheBaseOfAllLayersWithoutAList) {
  QUIRE_FIND_OR_SKIP(path, "models/granite_swa");
  const auto listed = [&](const Json& bases) {
    return LastLogits(path.string(), [&](PatchedModelFiles& files) {
      files.json.erase("no_rope_layers");
      files.json["layer_rope_theta"] = bases;
    });
  };
  EXPECT_EQ(listed(nullptr), listed({1e4, 1e4, 1e4, 1e4, 1e4}));
  EXPECT_NE(listed(nullptr), listed({1e4, 1e4, 1e4, 0, 1e4}));
}

}  // namespace
}  // namespace quire::runner::models
