// What is known of architectures by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "runner/models/encoder.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

using test::LoadPatched;
using test::PatchedModelFiles;
using testing::HasSubstr;

// All of llama.cpp 0.7.0 (build 11669).
constexpr const char* kLlamaCpp =
    "afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom "
    "chameleon "
    "chatglm clef clip codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek deepseek2 "
    "deepseek2-ocr "
    "deepseek32 deepseek4 dflash dots1 dots3note dream eagle3 ernie4_5 ernie4_5-moe eurobert exaone "
    "exaone-moe "
    "exaone4 falcon falcon-h1 gemma gemma-embedding gemma-embedding2 gemma2 gemma3 gemma3n gemma4 "
    "gemma4-assistant glm-dsa glm4 glm4moe glm5-next gpt-oss gpt2 gptj gptneox granite granite_swa "
    "granitehybrid "
    "granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 hy_v4 "
    "internlm2 "
    "jais jais2 jamba jina-bert-v2 jina-bert-v3 k2-horizon kimi-k3 kimi-linear laguna lfm2 lfm2moe llada "
    "llada-moe llama llama-embed llama4 maincoder maion-coder mamba mamba2 maple mellum mimo2 minicpm "
    "minicpm3 "
    "minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 modern-bert mpt muse-glimmer nanbeige nemotron "
    "nemotron_h nemotron_h_moe neo-bert nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr "
    "pangu-embedded phi2 phi3 phimoe plamo plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 "
    "qwen35 qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 rwkv6qwen2 "
    "rwkv7 seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 step35 t5 t5encoder talkie "
    "vllm-decision2 wavtokenizer-dec xverse";

std::set<std::string> Words(std::string text) {
  for (char& c : text) c = c == '|' ? ' ' : c;
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::set<std::string> Loaded(bool gguf) {
  std::set<std::string> names;
  for (const auto& list : {SupportedArchitectures(), EncoderArchitectures()}) {
    for (const Architecture& one : list) names.merge(Words(std::string(gguf ? one.gguf : one.hugging_face)));
  }
  return names;
}

TEST(ArchitectureNames, OfLlamaCppAreLoadedOrRefusedForAReason) {
  const std::set<std::string> gguf = Loaded(true), directories = Loaded(false);
  for (const std::string& name : Words(kLlamaCpp)) {
    const bool loaded = gguf.contains(name) || directories.contains(name);
    EXPECT_NE(loaded, !RefusalOf(name).empty()) << name;
  }
  EXPECT_TRUE(RefusalOf("").empty());
  EXPECT_TRUE(RefusalOf("llada|dream").empty());
}

TEST(ArchitectureNames, AreRefusedWithTheReason) {
  const auto model = LoadPatched("tests/data/models/llama",
                                 [](PatchedModelFiles& files) { files.json["model_type"] = "dream"; });
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message,
              HasSubstr("the architecture \"dream\" is not supported: a diffusion model"));
}

TEST(ArchitectureNames, ThatAreRefusedAreThoseOfTheDocumentation) {
  std::ifstream file("docs/models.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const RefusedArchitecture& refused : RefusedArchitectures()) {
    std::string row = "| " + std::string(refused.reason) + " | `" + std::string(refused.names) + "` |";
    for (size_t bar = row.find('|', row.find('`')); bar + 1 < row.size(); bar = row.find('|', bar + 1)) {
      row.replace(bar, 1, "`, `");
    }
    EXPECT_THAT(text, HasSubstr(row));
  }
}

}  // namespace
}  // namespace quire::runner::models
