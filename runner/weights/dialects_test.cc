// Repairs of metadata that other writers of GGUF spell otherwise, and the contradictions that end a load.
// That models compute the same afterwards is tested in tests/published.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/weights/dialects/repair_gguf.h"

namespace quire::runner::weights {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two floats.
const std::vector<std::byte> kData(8);

Tensor MakeTensor(const std::string& name, std::vector<int64_t> shape = {2}) {
  return {.name = name, .type = DataType::kF32, .shape = std::move(shape), .data = kData};
}

struct Repaired {
  ordered_json metadata;
  std::vector<std::string> tensors;
  std::vector<std::string> notes;
};

api::Result<Repaired> Repair(const ordered_json& metadata, std::vector<Tensor> tensors = {}) {
  GgufContents contents;
  contents.metadata = std::make_shared<ordered_json>(metadata);
  contents.tensors = std::move(tensors);
  auto repairs = RepairGguf(contents, "file");
  if (!repairs) return std::unexpected(repairs.error());
  Repaired repaired{*contents.metadata, {}, repairs->notes};
  for (const Tensor& tensor : contents.tensors) repaired.tensors.push_back(tensor.name);
  return repaired;
}

std::string ErrorOf(const ordered_json& metadata, std::vector<Tensor> tensors = {}) {
  const auto repaired = Repair(metadata, std::move(tensors));
  return repaired ? "" : repaired.error().message;
}

ordered_json Qwen(ordered_json more) {
  ordered_json metadata = {{"general.architecture", "qwen35"}, {"qwen35.block_count", 4}};
  metadata.update(more);
  return metadata;
}

TEST(Dialects, LeaveAFileOfTheConverterAlone) {
  const ordered_json metadata = {{"general.architecture", "llama"},
                                 {"tokenizer.ggml.model", "gpt2"},
                                 {"tokenizer.ggml.pre", "llama-bpe"}};
  const auto repaired = Repair(metadata, {MakeTensor("output_norm.weight")});
  ASSERT_TRUE(repaired);
  EXPECT_THAT(repaired->notes, IsEmpty());
  EXPECT_EQ(repaired->metadata, metadata);
  EXPECT_THAT(repaired->tensors, ElementsAre("output_norm.weight"));
}

TEST(Dialects, GptOssGetsItsNameAndItsTensors) {
  const auto repaired =
      Repair({{"general.architecture", "gptoss"},
              {"gptoss.block_count", 1},
              {"tokenizer.ggml.model", "gpt2"},
              {"tokenizer.ggml.pre", "default"}},
             {MakeTensor("blk.0.attn_sinks"), MakeTensor("blk.0.ffn_norm.weight"),
              MakeTensor("blk.0.attn_out.bias"), MakeTensor("blk.0.ffn_gate_exps.weight", {1, 7, 2})});
  ASSERT_TRUE(repaired) << repaired.error().message;
  EXPECT_EQ(repaired->metadata, (ordered_json{{"general.architecture", "gpt-oss"},
                                              {"gpt-oss.block_count", 1},
                                              {"tokenizer.ggml.model", "gpt2"},
                                              {"tokenizer.ggml.pre", "gpt-4o"},
                                              {"gpt-oss.expert_feed_forward_length", 7},
                                              {"gpt-oss.rope.scaling.type", "yarn"}}));
  EXPECT_THAT(repaired->tensors, ElementsAre("blk.0.attn_sinks.weight", "blk.0.post_attention_norm.weight",
                                             "blk.0.attn_output.bias", "blk.0.ffn_gate_exps.weight"));
  EXPECT_THAT(ErrorOf({{"general.architecture", "gptoss"}, {"gpt-oss.block_count", 1}}),
              HasSubstr("file: general.architecture: is gptoss, but there are keys of gpt-oss"));
}

TEST(Dialects, AnEmbeddingGemmaIsNoChatModel) {
  const auto repaired =
      Repair({{"general.architecture", "gemma3"}, {"gemma3.block_count", 1}},
             {MakeTensor("dense.0.weight"), MakeTensor("dense.1.weight"), MakeTensor("norm.weight")});
  ASSERT_TRUE(repaired);
  EXPECT_EQ(repaired->metadata["general.architecture"], "gemma-embedding");
  EXPECT_TRUE(repaired->metadata.contains("gemma-embedding.block_count"));
  EXPECT_THAT(repaired->tensors, ElementsAre("dense_2.weight", "dense_3.weight", "output_norm.weight"));
}

// Nothing is assumed: the load ends with the name of the key.
TEST(Dialects, AContradictionNamesItsKey) {
  EXPECT_THAT(ErrorOf({{"general.architecture", "llama"},
                       {"llama.rope.scale_linear", 4.0},
                       {"llama.rope.scaling.factor", 8.0}}),
              HasSubstr("llama.rope.scale_linear: is 4, but llama.rope.scaling.factor is 8"));
  EXPECT_THAT(ErrorOf({{"general.architecture", "llama"},
                       {"llama.rope.scale_linear", 4.0},
                       {"llama.rope.scaling.type", "yarn"}}),
              HasSubstr("llama.rope.scale_linear: is set, but llama.rope.scaling.type is not linear"));
  EXPECT_THAT(
      ErrorOf({{"general.architecture", "gemma4"}, {"tokenizer.ggml.model", "llama"}}),
      HasSubstr("tokenizer.ggml.model: is llama, but a Gemma 4 vocabulary needs tokenizer.ggml.merges"));
  EXPECT_THAT(
      ErrorOf({{"general.architecture", "gemma4"}},
              {MakeTensor("blk.0.ffn_down_exps.scale"), MakeTensor("blk.0.ffn_gate_inp.per_expert_scale")}),
      HasSubstr("the file has this tensor under two names"));
  EXPECT_THAT(ErrorOf({{"general.architecture", "gemma3"},
                       {"tokenizer.ggml.tokens", {"a", "b", "c"}},
                       {"tokenizer.ggml.eos_token_id", 2U}},
                      {MakeTensor("token_embd.weight", {2, 1})}),
              HasSubstr("tokenizer.ggml.eos_token_id: 2 is a token that token_embd.weight has no row for"));
  EXPECT_THAT(ErrorOf(Qwen({{"qwen35.attention.head_count_kv", {0, 2}}})),
              HasSubstr("qwen35.attention.head_count_kv: 2 numbers for 4 layers"));
  EXPECT_THAT(ErrorOf(Qwen({{"qwen35.attention.head_count_kv", {0, 2, 0, 4}}})),
              HasSubstr("qwen35.attention.head_count_kv: layers with different numbers of heads"));
  EXPECT_THAT(ErrorOf(Qwen({{"qwen35.attention.head_count_kv", {0, 0, 0, 0}}})),
              HasSubstr("no layer has KV heads"));
  EXPECT_THAT(ErrorOf(Qwen(
                  {{"qwen35.attention.head_count_kv", {0, 2, 0, 2}}, {"qwen35.full_attention_interval", 4}})),
              HasSubstr("head_count_kv: and qwen35.full_attention_interval name different layers: 1"));
  EXPECT_THAT(ErrorOf(Qwen({{"qwen35.ssm.v_head_reordered", false}})),
              HasSubstr("qwen35.ssm.v_head_reordered: is false"));
  EXPECT_THAT(ErrorOf(Qwen({{"qwen35.nextn_predict_layers", 2}}), {MakeTensor("mtp.fc.weight")}),
              HasSubstr("qwen35.nextn_predict_layers: is 2, but the file has 1 layers mtp.*"));
  EXPECT_THAT(ErrorOf({{"general.architecture", "lfm2"}},
                      {MakeTensor("output_norm.weight"), MakeTensor("token_embd_norm.weight")}),
              HasSubstr("\"token_embd_norm.weight\": the file has this tensor under two names"));
}

TEST(Dialects, AContradictionOfAPublishedFamilyNamesItsKey) {
  EXPECT_THAT(ErrorOf({{"general.architecture", "deepseek2"},
                       {"deepseek2.rope.scaling.type", ""},
                       {"deepseek2.rope.scaling.factor", 40.0}}),
              HasSubstr("deepseek2.rope.scaling.type: is empty, but deepseek2.rope.scaling.factor is 40"));
  EXPECT_THAT(ErrorOf({{"general.architecture", "phi3"}, {"phi3.rope.scaling.attn_factor", 1.19}}),
              HasSubstr("phi3.rope.scaling.attn_factor: is set, but there is neither"));
  EXPECT_THAT(ErrorOf({{"general.architecture", "mistral3"}, {"mistral3.rope.scaling.mscale", 0.7}}),
              HasSubstr("mistral3.rope.scaling.mscale: is 0.7; a Mistral 3 has 1"));
  EXPECT_THAT(ErrorOf({{"general.architecture", "olmo3"}, {"olmo2.block_count", 1}}),
              HasSubstr("general.architecture: is olmo3, but there are keys of olmo2"));
}

TEST(Dialects, NemotronIsNamedByItsExpertsAndNamesTheirProjections) {
  const auto dense =
      Repair({{"general.architecture", "nemotron_h_omni"}, {"nemotron_h_omni.expert_count", 0}});
  ASSERT_TRUE(dense) << dense.error().message;
  EXPECT_EQ(dense->metadata["general.architecture"], "nemotron_h");
  const auto sparse =
      Repair({{"general.architecture", "nemotron_h_omni"}, {"nemotron_h_omni.expert_count", 8}},
             {MakeTensor("blk.1.ffn_latent_in.weight", {2, 1}), MakeTensor("blk.1.ffn_latent_out.weight")});
  ASSERT_TRUE(sparse) << sparse.error().message;
  EXPECT_EQ(sparse->metadata["general.architecture"], "nemotron_h_moe");
  EXPECT_EQ(sparse->metadata["nemotron_h_moe.moe_latent_size"], 2);
  EXPECT_THAT(sparse->tensors, ElementsAre("blk.1.ffn_latent_down.weight", "blk.1.ffn_latent_up.weight"));
}

TEST(Dialects, ANormOfTheMtpGetsItsOne) {
  const std::vector<float> weights = {-0.5F, 0.25F};
  Tensor norm = MakeTensor("mtp.norm.weight");
  norm.data = std::as_bytes(std::span(weights));
  GgufContents contents;
  contents.metadata = std::make_shared<ordered_json>(Qwen(ordered_json::object()));
  contents.tensors = {norm, MakeTensor("mtp.layers.0.mlp.experts.3.up_proj.weight")};
  const auto repairs = RepairGguf(contents, "file");
  ASSERT_TRUE(repairs) << repairs.error().message;
  EXPECT_EQ(contents.tensors[0].name, "blk.4.nextn.shared_head_norm.weight");
  const auto* shifted = reinterpret_cast<const float*>(contents.tensors[0].data.data());
  EXPECT_EQ(shifted[0], 0.5F);
  EXPECT_EQ(shifted[1], 1.25F);
  EXPECT_EQ(contents.tensors[1].name, "blk.4.ffn_up.3.weight");
  EXPECT_EQ((*contents.metadata)["qwen35.block_count"], 5);
}

TEST(Dialects, APreTokenizerIsKnownByItsVocabulary) {
  const auto pre = [](const char* architecture, const char* bos, const char* eos, size_t tokens = 3) {
    ordered_json list = ordered_json::array({"a", bos, eos});
    while (list.size() < tokens) list.push_back("x");
    const auto repaired = Repair({{"general.architecture", architecture},
                                  {"tokenizer.ggml.model", "gpt2"},
                                  {"tokenizer.ggml.tokens", std::move(list)},
                                  {"tokenizer.ggml.bos_token_id", 1U},
                                  {"tokenizer.ggml.eos_token_id", 2U}});
    EXPECT_TRUE(repaired);
    return repaired->metadata.value("tokenizer.ggml.pre", "");
  };
  EXPECT_EQ(pre("llama", "<|begin_of_text|>", "<|end_of_text|>"), "llama-bpe");
  EXPECT_EQ(pre("qwen2", "<|endoftext|>", "<|im_end|>"), "qwen2");
  EXPECT_EQ(pre("qwen2", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"), "deepseek-r1-qwen");
  EXPECT_EQ(pre("qwen35", "", "<|im_end|>"), "qwen35");
  EXPECT_EQ(pre("llama", "<s>", "</s>", 131072), "tekken");
  EXPECT_EQ(pre("llama", "<s>", "</s>"), "") << "a vocabulary of this size is not known";
  EXPECT_EQ(pre("llama", "<|im_start|>", "<|im_end|>"), "");
}

TEST(Dialects, QwenMoeNormalizesTheWeightsOfItsExpertsAsItSays) {
  const auto repaired = Repair({{"general.architecture", "qwen3moe"}, {"qwen3moe.norm_top_k_prob", false}});
  ASSERT_TRUE(repaired);
  EXPECT_EQ(repaired->metadata["qwen3moe.expert_weights_norm"], false);
  EXPECT_THAT(repaired->notes, ElementsAre(HasSubstr("expert_weights_norm: read from")));
}

TEST(Dialects, ACharsmapInBase64IsRead) {
  const auto with = [](const std::string& base64) {
    ordered_json elements = ordered_json::array();
    for (const char c : base64) elements.push_back(std::string(1, c));
    return ordered_json{{"general.architecture", "bert"}, {"tokenizer.ggml.precompiled_charsmap", elements}};
  };
  for (const auto& [base64, bytes] : {std::pair<const char*, std::vector<int>>{"AQID", {1, 2, 3}},
                                      {"/+8=", {0xFF, 0xEF}},
                                      {"gA==", {0x80}},
                                      {"AAECAwQF", {0, 1, 2, 3, 4, 5}}}) {
    const auto repaired = Repair(with(base64));
    ASSERT_TRUE(repaired) << repaired.error().message;
    EXPECT_EQ(repaired->metadata["tokenizer.ggml.precompiled_charsmap"], ordered_json(bytes)) << base64;
    EXPECT_THAT(repaired->notes, ElementsAre(HasSubstr("base64")));
  }
  EXPECT_THAT(ErrorOf(with("A-ID")), HasSubstr("element 1 is no character of base64"));
  EXPECT_THAT(ErrorOf(with("AQ=D")), HasSubstr("goes on behind its end"));
  ordered_json mixed = with("AQID");
  mixed["tokenizer.ggml.precompiled_charsmap"][2] = 7;
  EXPECT_THAT(ErrorOf(mixed), HasSubstr("strings and numbers"));
  const auto bytes =
      Repair({{"general.architecture", "bert"}, {"tokenizer.ggml.precompiled_charsmap", {1, 2}}});
  ASSERT_TRUE(bytes);
  EXPECT_THAT(bytes->notes, IsEmpty());
}

TEST(Dialects, IdsOfNoTokenAreIgnored) {
  const auto repaired = Repair({{"general.architecture", "llama"},
                                {"tokenizer.ggml.tokens", {"a", "b"}},
                                {"tokenizer.ggml.bos_token_id", 1},
                                {"tokenizer.ggml.eos_token_id", 0U},
                                {"tokenizer.ggml.padding_token_id", 4294967295U},
                                {"tokenizer.ggml.mask_token_id", -1},
                                {"tokenizer.ggml.eot_token_id", 2U}});
  ASSERT_TRUE(repaired.has_value());
  EXPECT_EQ(repaired->metadata, (ordered_json{{"general.architecture", "llama"},
                                              {"tokenizer.ggml.tokens", {"a", "b"}},
                                              {"tokenizer.ggml.bos_token_id", 1U},
                                              {"tokenizer.ggml.eos_token_id", 0U}}));
  EXPECT_THAT(repaired->notes,
              ElementsAre("tokenizer.ggml.padding_token_id: 4294967295 is not the id of a token, ignored",
                          "tokenizer.ggml.mask_token_id: -1 is not the id of a token, ignored",
                          "tokenizer.ggml.eot_token_id: 2 is not the id of a token, ignored"));
}

}  // namespace
}  // namespace quire::runner::weights
