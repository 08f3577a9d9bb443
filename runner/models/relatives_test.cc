// Families whose properties others have too compute what those compute, and what single families do with a
// flag.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/testing/moe_models.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::kMoeBase;
using test::LastLogits;
using test::PatchedModelFiles;

std::vector<float> LlamaNamed(const std::string& family, const Json& keys) {
  return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
    files.json["model_type"] = family;
    files.json.update(keys);
  });
}

// New names for properties that other families have.
TEST(Relatives, OfLlama) {
  const Json windows = {
      {"sliding_window", 2},
      {"layer_types", {"full_attention", "sliding_attention", "sliding_attention", "full_attention"}}};
  EXPECT_EQ(LlamaNamed("cwm", windows), LlamaNamed("ministral", windows));
  EXPECT_EQ(
      LlamaNamed("helium", {{"head_dim", 16}, {"rms_norm_eps", 1e-5}}),
      LlamaNamed("ernie4_5", {{"head_dim", 16}, {"rms_norm_eps", 1e-5}, {"tie_word_embeddings", false}}));
  const Json scaled = {
      {"attention_multiplier", 0.25}, {"embedding_multiplier", 3.0}, {"residual_multiplier", 0.5}};
  Json granite = scaled, clova = scaled;
  granite["logits_scaling"] = 4.0;
  clova["logits_scaling"] = 0.25;
  clova["use_post_norm"] = false;
  EXPECT_EQ(LlamaNamed("hyperclovax", clova), LlamaNamed("granite", granite));
}

// Solar Open is GLM-4.5 without dense layers and norms of heads.
TEST(Relatives, SolarOpen) {
  const auto glm = [](const char* type) {
    return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeGlm4Moe(files);
      files.json["model_type"] = type;
      files.json["use_qk_norm"] = false;
      files.json.erase("first_k_dense_replace");
      files.json["mlp_layer_types"] = {"dense", "sparse", "sparse"};
    });
  };
  EXPECT_EQ(glm("solar_open"), glm("glm4_moe"));
}

// A directory that says nothing of angles has those of its family's configuration class.
TEST(Angles, OfAFamilyWhereNoneAreGiven) {
  const auto with = [](const char* base, void (*make)(PatchedModelFiles&), double theta) {
    return LastLogits(base, [&](PatchedModelFiles& files) {
      if (make != nullptr) make(files);
      for (const char* key : {"rope_theta", "rope_parameters", "rope_scaling"}) files.json.erase(key);
      if (theta > 0) files.json["rope_theta"] = theta;
    });
  };
  EXPECT_EQ(with("tests/data/tiny/cohere", nullptr, 0), with("tests/data/tiny/cohere", nullptr, 500000));
  EXPECT_NE(with("tests/data/tiny/cohere", nullptr, 0), with("tests/data/tiny/cohere", nullptr, 10000));
  for (const auto make : {test::MakeMixtral, test::MakePhiMoe}) {
    EXPECT_EQ(with(kMoeBase, make, 0), with(kMoeBase, make, 1e6));
    EXPECT_NE(with(kMoeBase, make, 0), with(kMoeBase, make, 1e4));
  }
}

// Its norms of queries and keys are behind the rotation.
TEST(Llama4, NormsUndoTheGrowthOfScaledAnglesButForTheirEpsilon) {
  const auto with = [](bool norms, double growth, double epsilon = 1e-5) {
    return LastLogits(kMoeBase, [&](PatchedModelFiles& files) {
      test::MakeLlama4(files);
      files.json["rms_norm_eps"] = epsilon;
      files.json["use_qk_norm"] = norms;
      files.json["rope_parameters"] = {{"rope_type", "yarn"},
                                       {"rope_theta", 10000.0},
                                       {"factor", 4.0},
                                       {"original_max_position_embeddings", 8},
                                       {"attention_factor", growth}};
    });
  };
  EXPECT_EQ(with(true, 2, 1e-14), with(true, 1, 1e-14));
  EXPECT_NE(with(true, 2, 0.01), with(true, 1, 0.01));
  EXPECT_NE(with(false, 2), with(false, 1));
}

TEST(Qwen3Next, ExpertsHaveTheActivationOfTheConfiguration) {
  const auto with = [](const char* activation) {
    return LastLogits("tests/data/models/qwen3_next", [&](PatchedModelFiles& files) {
      files.json["hidden_act"] = activation;
      std::vector<std::string> shared;
      for (const auto& tensor : files.tensors()) {
        if (tensor.name.ends_with("shared_expert.down_proj.weight")) shared.push_back(tensor.name);
      }
      ASSERT_FALSE(shared.empty());
      for (const std::string& name : shared) {
        const std::vector<int64_t> shape = files.Edit(name).shape;
        files.Remove(name);
        files.AddF32(name, shape, 0);
      }
    });
  };
  EXPECT_NE(with("gelu"), with("silu"));
}

}  // namespace
}  // namespace quire::runner::models
