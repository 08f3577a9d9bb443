// The published templates of the fixtures: which family each is, and that what it writes of an earlier call
// is read back as that call.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "runner/output/testing/parse_whole.h"
#include "tests/data/test_data.h"

namespace quire::runner::output {
namespace {

using nlohmann::json;
using testing::FormatOf;

std::filesystem::path TemplateFolder() { return test_data::FixturesPath() / "chat_templates"; }

json Load(const std::string& name) {
  std::ifstream file(TemplateFolder() / (name + ".json"), std::ios::binary);
  return json::parse(file);
}

std::string Rendered(const json& golden, std::string_view name) {
  for (const json& result : golden["results"]) {
    if (result["case"] == name) return result.value("expected", "");
  }
  return {};
}

struct Known {
  std::string family;
  bool tools = true;
  bool thinks = false;
};

const std::map<std::string, Known> kKnown = {
    {"Bielik-11B-v3.0-Instruct", {"qwen", true, true}},
    {"GLM-4.6", {"qwen", true, true}},
    {"GLM-4.7-Flash", {"qwen", true, true}},
    {"HuggingFaceTB-SmolLM3-3B", {"plain", false, true}},
    {"LFM2-8B-A1B", {"lfm2"}},
    {"LFM2.5-Instruct", {"lfm2"}},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"qwen", true, true}},
    {"NVIDIA-Nemotron-Nano-v2", {"nemotron", true, true}},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", {"qwen"}},
    {"Phi-4-mini-instruct", {"phi4"}},
    {"Qwen-Qwen2.5-7B-Instruct", {"qwen"}},
    {"Qwen-Qwen3-0.6B", {"qwen", true, true}},
    {"Qwen3-Coder-30B-A3B-Instruct", {"qwen"}},
    {"Qwen3.5-4B", {"qwen", true, true}},
    {"cz-llama-3-instruct", {"plain", false}},
    {"cz-vicuna", {"plain", false}},
    {"deepseek-ai-DeepSeek-V3.1", {"plain", false, true}},
    {"gemma-3-it", {"plain", false}},
    {"gemma4-E2B-it", {"gemma4", true, true}},
    {"google-gemma-2-2b-it", {"plain", false}},
    {"google-gemma-4-31B-it", {"gemma4", true, true}},
    {"google-gemma-4-31B-it-interleaved", {"gemma4", true, true}},
    {"ibm-granite-granite-4.0", {"qwen"}},
    {"meetkai-functionary-medium-v3.1", {"functionary"}},
    {"meta-llama-Llama-3.1-8B-Instruct", {"llama3"}},
    {"mistral-common-v13", {"mistral"}},
    {"mistral-common-v13_think", {"mistral", true, true}},
    {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral", true, true}},
    {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral"}},
    {"openai-gpt-oss-120b", {"harmony", true, true}},
    {"qwen3.5-0.8B", {"qwen", true, true}},
    {"unsloth-mistral-Devstral-Small-2507", {"mistral"}},
};

class Fixtures : public ::testing::Test {
 protected:
  void SetUp() override { QUIRE_FIND_OR_SKIP(templates, "chat_templates"); }
};

TEST_F(Fixtures, FamiliesAreKnownByTheirTemplates) {
  for (const auto& [name, known] : kKnown) {
    SCOPED_TRACE(name);
    const bool lfm2 = name.starts_with("LFM2");  // known by its vocabulary
    const Format format =
        FormatOf(Load(name)["template"].get<std::string>(),
                 lfm2 ? std::vector<std::string>{"<|tool_call_start|>"} : std::vector<std::string>{});
    EXPECT_EQ(format.family, known.family);
    EXPECT_EQ(format.supports_tools(), known.tools);
    EXPECT_EQ(format.can_think, known.thinks);
  }
}

// Where the assistant's turn ends, in one template or another.
size_t EndOfTurn(const std::string& text, size_t from) {
  size_t end = text.size();
  for (const std::string mark :
       {"<|im_end|>", "<EOS>", "<|tool_response>", "<turn|>", "<|start|>functions.", "<|eot_id|>",
        "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|observation|>", "<SPECIAL_12>"}) {
    end = std::min(end, text.find(mark, from));
  }
  return end;
}

TEST_F(Fixtures, ACallIsReadAsTheTemplateWritesIt) {
  int read = 0;
  for (const auto& [name, known] : kKnown) {
    SCOPED_TRACE(name);
    const json golden = Load(name);
    const std::string text = Rendered(golden, "tool_call_dict");
    const size_t city = text.rfind("Zürich");
    if (!known.tools || city == std::string::npos) continue;
    // The last turn of the assistant, without its header.
    size_t begin = std::string::npos;
    for (const std::string mark :
         {"<|im_start|>assistant\n", "[/INST]", "<|turn>model\n", "<|start|>assistant", "<|assistant|>",
          "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|start_of_role|>assistant<|end_of_role|>",
          "Assistant\n"}) {
      const size_t at = text.rfind(mark, city);
      if (at != std::string::npos && begin == std::string::npos) begin = at + mark.size();
    }
    ASSERT_NE(begin, std::string::npos);
    const Format format = FormatOf(golden["template"].get<std::string>());
    std::string turn = text.substr(begin, EndOfTurn(text, city) - begin);
    // Some templates write the quotes of JSON as HTML does, which no model would.
    if (turn.find("&#34;") != std::string::npos) continue;
    const auto answer = testing::Parse(format, turn);
    ASSERT_EQ(answer.calls.size(), 1U) << turn << "\n-> " << answer.text;
    EXPECT_EQ(answer.calls[0], R"(get_weather{"city":"Zürich","unit":"celsius"})");
    EXPECT_EQ(answer.text, "");
    ++read;
  }
  EXPECT_GE(read, 18);
}

}  // namespace
}  // namespace quire::runner::output
