// The families of 2019 to 2024 that differ from Llama in how their checkpoints store what it has, and what
// they refuse. That they compute the right thing is tested against goldens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/models/testing/moe_models.h"
#include "runner/models/testing/patched_model_files.h"
#include "tests/data/test_data.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::LastLogits;
using test::LoadPatched;
using test::PatchedModelFiles;
using testing::HasSubstr;

// A GGUF file of Llama under another name.
void Rename(PatchedModelFiles& files, const std::string& name) {
  Json renamed;
  for (const auto& [key, value] : files.json.items()) {
    renamed[key.starts_with("llama.") ? name + key.substr(5) : key] = value;
  }
  renamed["general.architecture"] = name;
  files.json = renamed;
}

std::vector<float> GgufNamed(const std::string& name, const Json& keys = Json::object()) {
  return LastLogits("tests/data/gguf/llama.f16.gguf", [&](PatchedModelFiles& files) {
    Rename(files, name);
    files.json.update(keys);
  });
}

TEST(ClassicFamilies, OfGgufFilesThatAreLlamas) {
  const std::vector<float> llama = GgufNamed("llama");
  for (const char* name : {"internlm2", "xverse"}) EXPECT_EQ(GgufNamed(name), llama) << name;
  EXPECT_EQ(GgufNamed("nanbeige", {{"nanbeige.num_loops", 1U}}), llama);
  EXPECT_NE(GgufNamed("nanbeige", {{"nanbeige.num_loops", 2U}}), llama);
  EXPECT_EQ(GgufNamed("minicpm", {{"minicpm.embedding_scale", 1.0},
                                  {"minicpm.residual_scale", 1.0},
                                  {"minicpm.logit_scale", 1.0}}),
            llama);
  // The rows of these are not permuted.
  EXPECT_EQ(GgufNamed("exaone"), GgufNamed("pangu-embedded"));
  EXPECT_NE(GgufNamed("exaone"), llama);
}

// Halves and doubles are exact.
TEST(ClassicFamilies, ScalesBesideTheWeightsOfGgufFilesMultiplyProducts) {
  const std::string llama = "tests/data/gguf/llama.f16.gguf";
  const auto scaled = [&](float values, float out) {
    return LastLogits(llama, [=](PatchedModelFiles& files) {
      files.AddF32("blk.1.attn_v.scale", {1}, values);
      files.AddF32("blk.1.attn_output.scale", {1}, out);
    });
  };
  const std::vector<float> plain = LastLogits(llama, [](PatchedModelFiles&) {});
  EXPECT_EQ(scaled(1, 1), plain);
  EXPECT_EQ(scaled(0.5F, 2), plain);
  EXPECT_NE(scaled(0.5F, 1), plain);
  const auto unread =
      LoadPatched(llama, [](PatchedModelFiles& files) { files.AddF32("blk.1.attn_norm.scale", {1}, 2); });
  ASSERT_FALSE(unread);
  EXPECT_THAT(unread.error().message, HasSubstr("tensor blk.1.attn_norm.scale is not supported"));
}

TEST(ClassicFamilies, ExaoneIsALlamaWithOtherNames) {
  const std::string llama = "tests/data/models/llama";
  const auto named = [](PatchedModelFiles& files) {
    files.json["model_type"] = "exaone";
    files.json["num_layers"] = files.json["num_hidden_layers"];
    files.json.erase("num_hidden_layers");
    files.MoveTo("model.embed_tokens.", "transformer.wte.");
    files.MoveTo("model.norm.", "transformer.ln_f.");
    for (int i = 0; i < 4; ++i) {
      const std::string from = "model.layers." + std::to_string(i) + ".",
                        to = "transformer.h." + std::to_string(i) + ".";
      for (const auto& [before, after] : {std::pair("input_layernorm", "ln_1"),
                                          {"post_attention_layernorm", "ln_2"},
                                          {"self_attn.q_proj", "attn.attention.q_proj"},
                                          {"self_attn.k_proj", "attn.attention.k_proj"},
                                          {"self_attn.v_proj", "attn.attention.v_proj"},
                                          {"self_attn.o_proj", "attn.attention.out_proj"},
                                          {"mlp.gate_proj", "mlp.c_fc_0"},
                                          {"mlp.up_proj", "mlp.c_fc_1"},
                                          {"mlp.down_proj", "mlp.c_proj"}}) {
        files.MoveTo(from + before + ".", to + after + ".");
      }
    }
  };
  EXPECT_EQ(LastLogits(llama, named), LastLogits(llama, [](PatchedModelFiles&) {}));
}

struct ClassicRefusal {
  const char* model;
  const char* key;
  Json value;
  const char* message;
};

const ClassicRefusal kRefusedKeys[] = {
    {"gpt2", "add_cross_attention", true, "add_cross_attention, which is not supported"},
    {"gpt2", "activation_function", "quick_gelu", "\"quick_gelu\" is not supported"},
    {"gpt2", "n_inner", 100, "c_fc.weight has the shape [64, 256]"},
    {"gpt2", "n_positions", 513, "wpe.weight has the shape"},
    {"gpt_bigcode", "multi_query", false, "c_attn.weight has the shape [96, 64]"},
    {"gpt_neox", "attention_bias", false, "query_key_value.bias is present"},
    {"gpt_neox", "hidden_act", "selu", "\"selu\" is not supported"},
    {"falcon7", "alibi", true, "alibi: only false is supported"},
    {"falcon7", "num_ln_in_parallel_attn", 2, "num_ln_in_parallel_attn: only 1"},
    {"falcon7", "bias", true, "query_key_value.bias is missing"},
    {"falcon40", "parallel_attn", false, "parallel_attn: only true is supported"},
    {"falcon40", "num_kv_heads", 3, "cannot share 3 KV heads"},
    {"bitnet", "hidden_act", "relu", "\"relu\" is not supported"},
    {"nanochat", "final_logit_softcapping", -1, "final_logit_softcapping is -1"},
};

TEST(ClassicFamilies, RefuseKeysByName) {
  for (const ClassicRefusal& refused : kRefusedKeys) {
    QUIRE_FIND_OR_SKIP(path, std::string("models/") + refused.model);
    SCOPED_TRACE(std::string(refused.model) + " " + refused.key);
    const auto model =
        LoadPatched(path, [&](PatchedModelFiles& files) { files.json[refused.key] = refused.value; });
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(model.error().message, HasSubstr(refused.message));
  }
}

}  // namespace
}  // namespace quire::runner::models
