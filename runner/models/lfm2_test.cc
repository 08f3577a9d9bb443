// The inputs that LoadModel accepts and rejects. The output of models is tested against golden files in
// runner/golden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/models/model.h"
#include "runner/models/testing/patched_model_files.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {
namespace {

using test::Edit;
using test::Json;
using test::LastLogits;
using test::LoadPatched;
using test::PatchedModelFiles;
using test::Tensor;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kHuggingFace = "tests/data/models/lfm2";
constexpr const char* kGguf = "tests/data/gguf/lfm2.f16.gguf";

const Edit kUnchanged = [](PatchedModelFiles&) {};

TEST(Lfm2, DescribesItself) {
  for (const char* path : {kHuggingFace, kGguf}) {
    const auto model = LoadModel(weights::Open(path).value());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ((*model)->architecture(), "lfm2");
    EXPECT_EQ((*model)->vocab_size(), 512);
    EXPECT_EQ((*model)->context_length(), 2048);
    EXPECT_EQ((*model)->parameters(), 272'000);
    EXPECT_GE((*model)->weight_bytes(), 2 * 272'000);
    const cache::Layout& layout = (*model)->cache_layout();
    ASSERT_EQ(layout.groups.size(), 1U);
    EXPECT_EQ(layout.groups[0].layers, 2);
    EXPECT_EQ(layout.groups[0].kv_heads, 2);
    EXPECT_EQ(layout.groups[0].head_dim, 16);
    EXPECT_EQ(layout.groups[0].window, 0);
    ASSERT_EQ(layout.recurrent.size(), 4U);
    EXPECT_EQ(layout.recurrent[3].conv_tail, 2);
    EXPECT_EQ(layout.recurrent[3].conv_dim, 64);
  }
}

TEST(Lfm2, ReadsTheKeysOfEitherStyle) {
  const std::vector<float> expected = LastLogits(kHuggingFace, kUnchanged);
  EXPECT_EQ(LastLogits(kHuggingFace,
                       [](PatchedModelFiles& files) {
                         Json& json = files.json;
                         for (const char* key :
                              {"full_attn_idxs", "rope_theta", "block_ff_dim", "norm_eps",
                               "num_attention_heads", "block_dim", "conv_dim", "conv_dim_out", "conv_bias"}) {
                           json.erase(key);
                         }
                         json["layer_types"] = {"conv", "conv",           "full_attention",
                                                "conv", "full_attention", "conv"};
                         json["rope_parameters"] = {{"rope_theta", 1000000}, {"rope_type", "default"}};
                         json["intermediate_size"] = 128;
                         json["block_auto_adjust_ff_dim"] = false;
                         json["block_ffn_dim_multiplier"] = nullptr;
                         json["tie_word_embeddings"] = true;
                         json["head_dim"] = 16;
                       }),
            expected);
  EXPECT_EQ(LastLogits(kHuggingFace, [](PatchedModelFiles& files) { files.json["intermediate_size"] = 7; }),
            expected)
      << "block_ff_dim wins";
}

TEST(Lfm2, AHeadOfItsOwnReplacesTheEmbedding) {
  const std::vector<float> expected = LastLogits(kHuggingFace, kUnchanged);
  EXPECT_EQ(LastLogits(kHuggingFace,
                       [](PatchedModelFiles& files) {
                         files.json["tie_embedding"] = false;
                         files.AddCopy("model.embed_tokens.weight", "lm_head.weight");
                       }),
            expected);
  EXPECT_EQ(LastLogits(kHuggingFace,
                       [](PatchedModelFiles& files) {
                         files.json["tie_embedding"] = false;
                         files.AddF32("lm_head.weight", {512, 64}, 0.0F);
                       }),
            std::vector<float>(512, 0.0F));
  EXPECT_EQ(LastLogits(kGguf,
                       [](PatchedModelFiles& files) {
                         files.AddF32("output.weight", {512, 64}, 0.0F);
                       }),
            std::vector<float>(512, 0.0F));
}

TEST(Lfm2, ConvolutionsMayHaveBiases) {
  const auto with_biases = [](float in, float conv, float out) {
    return LastLogits(kHuggingFace, [=](PatchedModelFiles& files) {
      files.json["conv_bias"] = true;
      for (const char* layer : {"0", "1", "3", "5"}) {
        const std::string prefix = std::string("model.layers.") + layer + ".conv.";
        files.AddF32(prefix + "in_proj.bias", {192}, in);
        files.AddF32(prefix + "conv.bias", {64}, conv);
        files.AddF32(prefix + "out_proj.bias", {64}, out);
      }
    });
  };
  const std::vector<float> expected = LastLogits(kHuggingFace, kUnchanged);
  EXPECT_EQ(with_biases(0, 0, 0), expected);
  EXPECT_NE(with_biases(1, 0, 0), expected);
  EXPECT_NE(with_biases(0, 1, 0), expected);
  EXPECT_NE(with_biases(0, 0, 1), expected);
}

TEST(Lfm2, RunsWithOneKindOfLayerOnly) {
  const auto convolutions = [](PatchedModelFiles& files) {
    files.json["num_hidden_layers"] = 2;  // both convolutions
    files.json["full_attn_idxs"] = Json::array();
  };
  EXPECT_EQ(LastLogits(kHuggingFace, convolutions).size(), 512U);
  const auto attention = [](PatchedModelFiles& files) {
    files.json["num_hidden_layers"] = 1;
    files.json["full_attn_idxs"] = {0};
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj", "q_layernorm", "k_layernorm"}) {
      const std::string name = std::string(".self_attn.") + part + ".weight";
      files.AddCopy("model.layers.2" + name, "model.layers.0" + name);
    }
  };
  EXPECT_EQ(LastLogits(kHuggingFace, attention).size(), 512U);
}

struct Lfm2Refusal {
  const char* what;
  Edit edit;
  const char* message;  // part of it
};

Edit Set(const char* key, Json value) {
  return [=](PatchedModelFiles& files) { files.json[key] = value; };
}
Edit Erase(const char* key) {
  return [=](PatchedModelFiles& files) { files.json.erase(key); };
}

void ExpectLfm2Refusals(const char* path, std::span<const Lfm2Refusal> refusals) {
  for (const Lfm2Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.what);
    const auto model = LoadPatched(path, refusal.edit);
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(model.error().message, AllOf(HasSubstr("the/file"), HasSubstr(refusal.message)));
  }
}

const Lfm2Refusal kHuggingFaceRefusals[] = {
    {"no hidden size", Erase("hidden_size"), "hidden_size"},
    {"null hidden size", Set("hidden_size", nullptr), "hidden_size"},
    {"fractional hidden size", Set("hidden_size", 64.5), "hidden_size is 64.5"},
    {"text for a number", Set("hidden_size", "64"), "hidden_size is \"64\""},
    {"an object for a number", Set("hidden_size", Json::object()), "hidden_size is an object"},
    {"more than int64", Set("hidden_size", UINT64_MAX), "hidden_size is"},
    {"huge hidden size", Set("hidden_size", int64_t{1} << 40), "hidden_size is"},
    {"another hidden size", Set("block_dim", 65), "block_dim differs from hidden_size 64"},
    {"no vocabulary", Set("vocab_size", 0), "vocab_size is 0"},
    {"another vocabulary", Set("vocab_size", 513), "model.embed_tokens.weight has the shape [512, 64]"},
    {"no layers", Set("num_hidden_layers", 0), "num_hidden_layers is 0"},
    {"negative layers", Set("num_hidden_layers", -6), "num_hidden_layers is -6"},
    {"huge number of layers", Set("num_hidden_layers", 1'000'000'000), "num_hidden_layers is 1000000000"},
    {"more layers than stored", Set("num_hidden_layers", 1000),
     "model.layers.6.operator_norm.weight is missing"},
    {"no heads", Set("num_attention_heads", 0), "num_attention_heads is 0"},
    {"KV heads that do not divide", Set("num_key_value_heads", 3),
     "4 attention heads cannot share 3 KV heads"},
    {"width not divisible",
     [](PatchedModelFiles& files) {
       files.json["num_attention_heads"] = 6;
       files.json["num_key_value_heads"] = 3;
     },
     "hidden size 64 is not a multiple of 6 heads"},
    {"odd head dimension",
     [](PatchedModelFiles& files) {
       files.json["num_attention_heads"] = 64;
       files.json["num_key_value_heads"] = 64;
     },
     "head dimension 1 is odd"},
    {"huge head dimension", Set("head_dim", 100'000), "head_dim is"},
    {"another head dimension", Set("head_dim", 32), "self_attn.q_proj.weight has the shape [64, 64]"},
    {"more KV heads than heads", Set("num_key_value_heads", 8), "4 attention heads cannot share 8 KV heads"},
    {"no KV heads", Set("num_key_value_heads", 0), "num_key_value_heads is 0"},
    {"another feed-forward width", Set("block_ff_dim", 300),
     "feed_forward.w1.weight has the shape [128, 64]"},
    {"a multiple of 0", Set("block_multiple_of", 0), "block_multiple_of is 0"},
    {"a width of 0", Set("block_ffn_dim_multiplier", 1e-9), "feed-forward width is 0"},
    {"no convolution", Set("conv_L_cache", 0), "conv_L_cache is 0"},
    {"huge convolution", Set("conv_L_cache", 1 << 30), "conv_L_cache is"},
    {"another convolution", Set("conv_L_cache", 4), "conv.conv.weight has the shape [64, 1, 3]"},
    {"biases that are not there", Set("conv_bias", true), "conv.in_proj.bias is missing"},
    {"biases that should not be there",
     [](PatchedModelFiles& files) { files.AddF32("model.layers.0.conv.conv.bias", {64}, 1); },
     "model.layers.0.conv.conv.bias is present"},
    {"conv_bias of another type", Set("conv_bias", 1), "conv_bias is 1, not true or false"},
    {"no context", Set("max_position_embeddings", 0), "max_position_embeddings is 0"},
    {"eps of 0",
     [](PatchedModelFiles& files) {
       files.json["norm_eps"] = 0;
       files.json["block_norm_eps"] = 0;
     },
     "norm_eps is 0"},
    {"no eps",
     [](PatchedModelFiles& files) {
       files.json.erase("norm_eps");
       files.json.erase("block_norm_eps");
     },
     "lacks norm_eps"},
    {"negative theta", Set("rope_theta", -1), "is -1"},
    {"no theta", Erase("rope_theta"), "lacks rope_parameters/rope_theta"},
    {"another rotary embedding", Set("rope_scaling", {{"rope_type", "spiral"}}),
     "\"spiral\" is not supported"},
    {"layer kinds unknown", Erase("full_attn_idxs"), "lacks layer_types"},
    {"an attention layer beyond the last", Set("full_attn_idxs", {2, 6}), "full_attn_idxs"},
    {"an attention layer twice", Set("full_attn_idxs", {2, 2}), "full_attn_idxs"},
    {"a negative layer", Set("full_attn_idxs", {-1}), "full_attn_idxs"},
    {"layers that are no list", Set("full_attn_idxs", 2), "full_attn_idxs is not a list"},
    {"too few layer types", Set("layer_types", {"conv"}), "layer_types is not a list of 6"},
    {"an unknown layer type", Set("layer_types", Json(std::vector<std::string>(6, "mamba"))),
     "layer_types[0]"},
    {"layer types at odds", Set("layer_types", Json(std::vector<std::string>(6, "conv"))),
     "different attention"},
    {"attention where a convolution is stored", Set("full_attn_idxs", {1, 4}), "model.layers.1.self_attn"},
    {"an untied head that is missing", Set("tie_embedding", false), "lm_head.weight is missing"},
    {"not an object", [](PatchedModelFiles& files) { files.json["rope_theta"] = Json::array(); },
     "rope_theta is an array"},
};

TEST(Lfm2, RefusesHostileHuggingFaceConfigurations) {
  ExpectLfm2Refusals(kHuggingFace, kHuggingFaceRefusals);
}

const Lfm2Refusal kGgufRefusals[] = {
    {"no layers", Set("lfm2.block_count", 0), "lfm2.block_count is 0"},
    {"huge number of layers", Set("lfm2.block_count", UINT32_MAX), "lfm2.block_count is"},
    {"more layers than KV counts", Set("lfm2.block_count", 7), "not a list of 7"},
    {"a single KV count", Set("lfm2.attention.head_count_kv", 2), "not a list of 6"},
    {"KV heads that differ", Set("lfm2.attention.head_count_kv", {0, 0, 2, 0, 4, 0}), "differs between"},
    {"negative KV heads", Set("lfm2.attention.head_count_kv", {0, 0, -2, 0, 2, 0}),
     "[2] is not an integer in [0, 4096]"},
    {"more KV heads than heads", Set("lfm2.attention.head_count_kv", {0, 0, 8, 0, 8, 0}), "cannot share 8"},
    {"a convolution where attention is stored", Set("lfm2.attention.head_count_kv", {0, 0, 0, 0, 2, 0}),
     "blk.2.shortconv.in_proj.weight is missing"},
    {"no heads", Erase("lfm2.attention.head_count"), "lacks lfm2.attention.head_count"},
    {"another width", Set("lfm2.embedding_length", 128), "token_embd.weight has the shape [512, 64]"},
    {"another vocabulary", Set("lfm2.vocab_size", 511), "token_embd.weight has the shape [512, 64]"},
    {"another feed-forward width", Set("lfm2.feed_forward_length", 192), "ffn_gate.weight has the shape"},
    {"another convolution", Set("lfm2.shortconv.l_cache", 5), "shortconv.conv.weight has the shape [64, 3]"},
    {"a scaled rotary embedding", Set("lfm2.rope.scaling.type", "dynamic"), "\"dynamic\" is not supported"},
    {"no theta", Erase("lfm2.rope.freq_base"), "lacks lfm2.rope.freq_base"},
    {"no eps", Erase("lfm2.attention.layer_norm_rms_epsilon"), "lacks lfm2.attention.layer_norm_rms_epsilon"},
    {"no embedding", [](PatchedModelFiles& files) { files.Remove("token_embd.weight"); },
     "token_embd.weight is missing"},
    {"an embedding of one dimension",
     [](PatchedModelFiles& files) { files.Edit("token_embd.weight").shape = {512 * 64}; },
     "token_embd.weight has the shape [32768]"},
    {"a transposed matrix",
     [](PatchedModelFiles& files) { std::ranges::reverse(files.Edit("blk.0.ffn_down.weight").shape); },
     "blk.0.ffn_down.weight has the shape [128, 64], but the configuration requires [64, 128]"},
    {"a norm of another size",
     [](PatchedModelFiles& files) { files.Edit("blk.2.attn_q_norm.weight").shape = {8}; },
     "blk.2.attn_q_norm.weight has the shape [8]"},
    {"no final norm", [](PatchedModelFiles& files) { files.Remove("token_embd_norm.weight"); },
     "token_embd_norm.weight is missing"},
};

TEST(Lfm2, RefusesHostileGgufConfigurations) { ExpectLfm2Refusals(kGguf, kGgufRefusals); }

TEST(LoadModel, NamesTheArchitecturesThereAre) {
  const auto model = LoadPatched(kHuggingFace, Set("model_type", "gpt9"));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, api::ErrorCode::kBadModel);
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("the/file"), HasSubstr("\"gpt9\""), HasSubstr("lfm2")));
}

}  // namespace
}  // namespace quire::runner::models
