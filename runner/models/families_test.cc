// The families by what sets them apart, and what they refuse. That they compute the right thing is tested
// against goldens in runner/golden.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

namespace fs = std::filesystem;
using test::Edit;
using test::Json;
using test::LastLogits;
using test::LoadPatched;
using test::LogitsBehindARemoval;
using test::PatchedModelFiles;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kQwen35 = "tests/data/models/qwen3_5";

const Edit kNoEdit = [](PatchedModelFiles&) {};

TEST(Llama, BiasesMakeItAQwen2) {
  const std::string llama = "tests/data/models/llama";
  const auto biased = [&](float value) {
    return LastLogits(llama, [=](PatchedModelFiles& files) {
      files.json["model_type"] = "qwen2";
      for (int layer = 0; layer < 4; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
        files.AddF32(prefix + "q_proj.bias", {64}, value);
        files.AddF32(prefix + "k_proj.bias", {32}, value);
        files.AddF32(prefix + "v_proj.bias", {32}, value);
      }
    });
  };
  const std::vector<float> expected = LastLogits(llama, kNoEdit);
  EXPECT_EQ(biased(0), expected);
  EXPECT_NE(biased(1), expected);
  const auto without =
      LoadPatched(llama, [](PatchedModelFiles& files) { files.json["model_type"] = "qwen2"; });
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message, HasSubstr("model.layers.0.self_attn.q_proj.bias is missing"));
}

TEST(Llama, StretchesAnglesAlikeFromEitherFormat) {
  const std::string llama = "tests/data/models/llama";
  const std::string gguf = "tests/data/gguf/llama.f16.gguf";
  const auto scaled = [&](Json rope) {
    return LastLogits(llama, [=](PatchedModelFiles& files) {
      files.json.erase("rope_parameters");
      files.json["rope_theta"] = 500000;
      files.json["rope_scaling"] = rope;
    });
  };
  const auto stored = [&](const char* type, double factor) {
    return LastLogits(gguf, [=](PatchedModelFiles& files) {
      files.Remove("rope_freqs.weight");
      files.json["llama.rope.scaling.type"] = type;
      files.json["llama.rope.scaling.factor"] = factor;
      files.json["llama.rope.scaling.original_context_length"] = 8U;
    });
  };
  const Json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  const Json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(scaled(yarn), stored("yarn", 4));
  EXPECT_EQ(scaled(linear), stored("linear", 4));
  EXPECT_EQ(scaled({{"rope_type", "default"}}), stored("none", 4));
  EXPECT_NE(scaled(yarn), scaled(linear));
  EXPECT_NE(scaled(yarn), scaled({{"rope_type", "default"}}));
  // YaRN's attention factor may be given, or follow from two numbers.
  Json told = yarn, equal = yarn;
  told["attention_factor"] = 1.0;
  equal["mscale"] = 1.0;
  equal["mscale_all_dim"] = 1.0;
  EXPECT_EQ(scaled(told), scaled(equal));
  EXPECT_NE(scaled(told), scaled(yarn));
  Json grown = yarn;
  grown["attention_factor"] = 0.1 * std::log(4.0) + 1;
  EXPECT_EQ(scaled(grown), scaled(yarn));
}

TEST(Llama, RefusesTwoStatementsOfItsAnglesThatDiffer) {
  const auto load = [](const Json& parameters, const Json& scaling) {
    return LoadPatched("tests/data/models/llama", [&](PatchedModelFiles& files) {
      files.json["rope_parameters"] = parameters;
      files.json["rope_scaling"] = scaling;
    });
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 10000}};
  EXPECT_TRUE(load(linear, nullptr));
  EXPECT_TRUE(load(linear, {{"type", "linear"}, {"factor", 4}}));
  const auto other_type = load(linear, {{"type", "yarn"}, {"factor", 4.0}});
  ASSERT_FALSE(other_type);
  EXPECT_THAT(other_type.error().message,
              HasSubstr("rope_scaling/type and rope_parameters/rope_type contradict each other"));
  const auto other_factor = load(linear, {{"rope_type", "linear"}, {"factor", 2.0}});
  ASSERT_FALSE(other_factor);
  EXPECT_THAT(other_factor.error().message, HasSubstr("rope_scaling/factor and rope_parameters/factor"));
}

// With one layer, keys and values depend on their own token and position alone. Heads of 32, for Q8_0.
TEST(Llama, KeysAreRotatedToWhereARemovalMovesThem) {
  for (const auto& [type, tolerance] : {std::pair(api::KvType::kF32, 1e-4),
                                        {api::KvType::kF16, 2e-2},
                                        {api::KvType::kI16, 2e-2},
                                        {api::KvType::kBF16, 0.1},
                                        {api::KvType::kQ8_0, 0.3}}) {
    SCOPED_TRACE(api::NameOf(type));
    auto model = LoadPatched("tests/data/models/llama", [](PatchedModelFiles& files) {
                   files.json["num_hidden_layers"] = 1;
                   files.json["head_dim"] = 32;
                   files.json["num_attention_heads"] = 2;
                   files.json["num_key_value_heads"] = 1;
                 }).value();
    ASSERT_TRUE(model->SetKvCacheType(type));
    const auto [removed, fresh] = LogitsBehindARemoval(*model);
    for (size_t i = 0; i < removed.size(); ++i) ASSERT_NEAR(removed[i], fresh[i], tolerance);
  }
}

TEST(Qwen35, IsFoundInsideAMultimodalCheckpoint) {
  const std::vector<float> expected = LastLogits(kQwen35, kNoEdit);
  EXPECT_EQ(LastLogits(kQwen35,
                       [](PatchedModelFiles& files) {
                         Json text = files.json;
                         files.json = {{"model_type", "qwen3_5"}, {"text_config", text}};
                         files.MoveTo("model.", "model.language_model.");
                       }),
            expected);
}

// A text model and the checkpoint that has it beside a tower, in published spellings.
struct BesideATower {
  const char* text;
  const char* model_type;
  const char* prefix;  // in place of "model."
  ImageRules rules = {};
  Json more = Json::object();  // of the text's configuration
};

const BesideATower kBesideATower[] = {
    {"gemma3", "gemma3", "language_model.model.", {.both_ways = true}},
    {"gemma3", "gemma3", "model.language_model.", {.both_ways = true}},
    {"gemma4_e", "gemma4", "model.language_model."},
    {"lfm2", "lfm2_vl", "model.language_model."},
    {"llama",
     "smolvlm",
     "model.text_model.",
     {},
     {{"perceiver_config", {{"resampler_depth", 6}}},
      {"pixel_shuffle_factor", 4},
      {"qk_layer_norms", false},
      {"use_resampler", false},
      {"transformers.js_config", {{"kv_cache_dtype", "fp16"}}}}},
    {"mistral", "llava", "language_model.model.", {}, {{"is_composition", true}}},
    {"mistral", "mistral3", "language_model.model."},
    {"qwen3", "qwen3_vl", "model.language_model.", {.grid_positions = true}},
    {"qwen3_5", "qwen3_5", "model.language_model.", {.grid_positions = true}},
};

TEST(TextModels, AreFoundBesideATower) {
  for (const BesideATower& beside : kBesideATower) {
    SCOPED_TRACE(beside.model_type);
    const std::string path = std::string("tests/data/models/") + beside.text;
    const Edit edit = [&](PatchedModelFiles& files) {
      Json text = files.json;
      text.update(beside.more);
      files.json = {{"model_type", beside.model_type},
                    {"text_config", text},
                    {"image_token_index", 3},
                    {"vision_config", {{"hidden_size", 1 << 30}, {"model_type", "a_tower"}}}};
      files.MoveTo("model.", beside.prefix);
      if (std::string_view(beside.prefix).starts_with("language_model.")) {
        files.MoveTo("lm_head.", "language_model.lm_head.");
      }
      files.AddF32("vision_tower.patches.weight", {64, 64}, 1);
      files.AddF32("multi_modal_projector.linear.weight", {64, 64}, 1);
    };
    EXPECT_EQ(LastLogits(path, edit), LastLogits(path, kNoEdit));
    const auto plain = LoadPatched(path, kNoEdit), model = LoadPatched(path, edit);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ((*model)->weight_bytes(), (*plain)->weight_bytes());
    EXPECT_EQ((*model)->resident_bytes(), (*plain)->resident_bytes());
    EXPECT_EQ((*model)->image_rules().both_ways, beside.rules.both_ways);
    EXPECT_EQ((*model)->image_rules().grid_positions, beside.rules.grid_positions);
  }
}

// Its published configurations have no text_config.
TEST(TextModels, OfQwen2VlLieOpen) {
  const std::string llama = "tests/data/models/llama";
  EXPECT_EQ(LastLogits(llama,
                       [](PatchedModelFiles& files) {
                         files.json["model_type"] = "qwen2_vl";
                         files.json["vision_config"] = {{"depth", 32}};
                         files.json["rope_parameters"]["mrope_section"] = {2, 3, 3};
                         for (int layer = 0; layer < 4; ++layer) {
                           const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
                           for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
                             const int64_t rows = part[0] == 'q' ? 64 : 32;
                             files.AddF32(prefix + part + ".bias", {rows}, 0);
                           }
                         }
                         files.AddF32("visual.patch_embed.proj.weight", {64, 64}, 1);
                       }),
            LastLogits(llama, kNoEdit));
}

// A mixture of one expert is that expert.
TEST(Qwen35, MayHaveExpertsStackedOrApart) {
  const auto make_mixture = [](PatchedModelFiles& files, bool stacked) {
    files.json["model_type"] = "qwen3_5_moe_text";
    files.json["num_experts"] = 1;
    files.json["num_experts_per_tok"] = 1;
    files.json["moe_intermediate_size"] = 128;
    files.json["shared_expert_intermediate_size"] = 8;
    for (int layer = 0; layer < 4; ++layer) {
      const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
      files.AddF32(mlp + "gate.weight", {1, 64}, 0.5F);
      files.AddF32(mlp + "shared_expert_gate.weight", {1, 64}, 0.5F);
      files.AddF32(mlp + "shared_expert.gate_proj.weight", {8, 64}, 1);
      files.AddF32(mlp + "shared_expert.up_proj.weight", {8, 64}, 1);
      files.AddF32(mlp + "shared_expert.down_proj.weight", {64, 8}, 0);
      if (!stacked) {
        for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
          files.AddCopy(mlp + part + ".weight", mlp + "experts.0." + part + ".weight");
        }
        continue;
      }
      const auto gate = files.Edit(mlp + "gate_proj.weight").data,
                 up = files.Edit(mlp + "up_proj.weight").data;
      std::vector<std::byte> both(gate.begin(), gate.end());
      both.insert(both.end(), up.begin(), up.end());
      files.Add(mlp + "experts.gate_up_proj", weights::DataType::kBF16, {1, 256, 64}, both);
      files.AddCopy(mlp + "down_proj.weight", mlp + "experts.down_proj");
      files.Edit(mlp + "experts.down_proj").shape = {1, 64, 128};
    }
  };
  const std::vector<float> expected = LastLogits(kQwen35, kNoEdit);
  EXPECT_EQ(LastLogits(kQwen35, [&](PatchedModelFiles& files) { make_mixture(files, true); }), expected);
  EXPECT_EQ(LastLogits(kQwen35, [&](PatchedModelFiles& files) { make_mixture(files, false); }), expected);
}

struct Refusal {
  const char* key;
  Json value;
  const char* message;
};

void ExpectRefusals(const std::string& path, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(std::string(refusal.key) + " = " + refusal.value.dump());
    const auto model =
        LoadPatched(path, [&](PatchedModelFiles& files) { files.json[refusal.key] = refusal.value; });
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(model.error().message, AllOf(HasSubstr("the/file"), HasSubstr(refusal.message)));
  }
}

TEST(Qwen35, RefusesHostileConfigurations) {
  ExpectRefusals(
      kQwen35,
      {{"linear_num_value_heads", 3, "3 value heads cannot share 2 key heads"},
       {"linear_num_key_heads", 0, "linear_num_key_heads is 0"},
       {"linear_num_value_heads", 4096, "in_proj_qkv.weight has the shape"},
       {"linear_key_head_dim", 1 << 20, "linear_key_head_dim is"},
       {"linear_value_head_dim", -1, "linear_value_head_dim is -1"},
       {"linear_conv_kernel_dim", 1, "linear_conv_kernel_dim is 1"},
       {"linear_conv_kernel_dim", 3, "conv1d.weight has the shape"},
       {"layer_types", Json(std::vector<std::string>(4, "mamba")), "layer_types[0] is neither"},
       {"layer_types", {"linear_attention"}, "layer_types is not a list of 4"},
       {"full_attention_interval", 0, "full_attention_interval is 0"},
       {"rope_parameters",
        {{"rope_theta", 1e4}, {"partial_rotary_factor", 1e-3}},
        "the rotary embedding has no dimensions"},
       {"rope_parameters", {{"rope_theta", 1e4}, {"rope_type", "spiral"}}, "\"spiral\" is not supported"},
       {"num_experts", -1, "num_experts is -1"},
       {"num_experts", 2, "lacks num_experts_per_tok"},
       {"max_position_embeddings", 0, "max_position_embeddings is 0"},
       {"rms_norm_eps", 0, "is 0, not a number in"},
       {"intermediate_size", 64, "mlp.gate_proj.weight has the shape"},
       {"tie_word_embeddings", false, "lm_head.weight is missing"}});
}

TEST(Gemma, RefusesHostileConfigurations) {
  const std::string gemma3 = "tests/data/models/gemma3";
  ExpectRefusals(
      gemma3, {{"sliding_window", -1, "sliding_window is -1"},
               {"use_bidirectional_attention", true, "use_bidirectional_attention: only false is supported"},
               {"is_causal", false, "is_causal: only true is supported for a decoder"},
               {"query_pre_attn_scalar", 0, "query_pre_attn_scalar is 0"},
               {"layer_types", Json(std::vector<std::string>(7, "conv")), "layer_types[0] is neither"},
               {"head_dim", 16, "q_proj.weight has the shape"}});
  const std::string gemma4 = "tests/data/models/gemma4_e";
  ExpectRefusals(gemma4, {{"num_kv_shared_layers", 7, "no earlier layer of their type has keys"},
                          {"num_kv_shared_layers", 8, "num_kv_shared_layers is 8"},
                          {"vocab_size_per_layer_input", 100, "is below vocab_size 512"},
                          {"hidden_size_per_layer_input", 8, "embed_tokens_per_layer.weight has the shape"},
                          {"global_head_dim", 1 << 20, "global_head_dim is"},
                          {"num_key_value_heads", 3, "cannot share 3 KV heads"},
                          {"sliding_window", 0, "self_attn.q_proj.weight has the shape [64, 64]"}});
}

TEST(SupportedArchitectures, AreThoseOfTheDocumentation) {
  std::ifstream file("docs/models.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const Architecture& architecture : SupportedArchitectures()) {
    std::string row = "| " + std::string(architecture.family) + " |";
    for (const std::string_view names : {architecture.hugging_face, architecture.gguf}) {
      std::string cell = names.empty() ? " - |" : " `" + std::string(names) + "` |";
      for (size_t bar = cell.find('|'); bar + 1 < cell.size(); bar = cell.find('|', bar + 1)) {
        cell.replace(bar, 1, "`, `");
      }
      row += cell;
    }
    const std::string_view reference = architecture.hugging_face.empty() ? " llama.cpp" : "";
    row += architecture.reference.empty() ? fmt::format("{} |", reference)
                                          : fmt::format(" {} |", architecture.reference);
    EXPECT_THAT(text, HasSubstr(row));
  }
}

}  // namespace
}  // namespace quire::runner::models
