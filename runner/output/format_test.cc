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
    {"Apertus-8B-Instruct", {"apertus"}},
    {"Bielik-11B-v3.0-Instruct", {"qwen", true, true}},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", {"command-r7b", true, true}},
    {"GLM-4.6", {"glm", true, true}},
    {"GLM-4.7-Flash", {"glm", true, true}},
    {"GigaChat3.1-10B-A1.8B", {"gigachat"}},
    {"HuggingFaceTB-SmolLM3-3B", {"plain", false, true}},
    {"Kimi-K2-Instruct", {"kimi-k2"}},
    {"Kimi-K2-Thinking", {"kimi-k2", true, true}},
    {"LFM2-8B-A1B", {"lfm2"}},
    {"LFM2.5-Instruct", {"lfm2"}},
    {"MiMo-VL", {"qwen"}},
    {"MiniMax-M2", {"minimax", true, true}},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"qwen3-coder", true, true}},
    {"NVIDIA-Nemotron-Nano-v2", {"nemotron", true, true}},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", {"qwen"}},
    {"Phi-4-mini-instruct", {"phi4"}},
    {"Qwen-Qwen2.5-7B-Instruct", {"qwen"}},
    {"Qwen-Qwen3-0.6B", {"qwen", true, true}},
    {"Qwen3-Coder-30B-A3B-Instruct", {"qwen3-coder"}},
    {"Qwen3.5-4B", {"qwen3-coder", true, true}},
    {"StepFun3.5-Flash", {"qwen3-coder", true, true}},
    {"cz-llama-3-instruct", {"plain", false}},
    {"cz-vicuna", {"plain", false}},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek3", false, true}},
    {"deepseek-ai-DeepSeek-V3.1", {"deepseek3.1", false, true}},
    {"gemma-3-it", {"plain", false}},
    {"gemma4-E2B-it", {"gemma4", true, true}},
    {"google-gemma-2-2b-it", {"plain", false}},
    {"google-gemma-4-31B-it", {"gemma4", true, true}},
    {"google-gemma-4-31B-it-interleaved", {"gemma4", true, true}},
    {"ibm-granite-granite-3.3-2B-Instruct", {"granite3", true, true}},
    {"ibm-granite-granite-4.0", {"qwen"}},
    {"meetkai-functionary-medium-v3.1", {"functionary"}},
    {"meta-llama-Llama-3.1-8B-Instruct", {"llama3"}},
    {"mistral-common-v13", {"mistral"}},
    {"mistral-common-v13_think", {"mistral", true, true}},
    {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral", true, true}},
    {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral"}},
    {"openai-gpt-oss-120b", {"harmony", true, true}},
    {"qwen3.5-0.8B", {"qwen3-coder", true, true}},
    {"unsloth-mistral-Devstral-Small-2507", {"mistral"}},
    {"upstage-Solar-Open-100B", {"solar"}},
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

// What SmolLM3's and EXAONE 4's published templates say of tools, in other words: calls are JSON between
// tags.
TEST(Format, FamiliesWithoutATemplateOfTheFixtures) {
  const struct {
    const char* chat_template;
    const char* family;
    const char* turn;
    bool thinks;
  } cases[] = {
      {"{%- if tools %}{%- set xml_tools = tools %}{%- endif %}{% for t in xml_tools %}{{ t | string }}{% "
       "endfor %}"
       "Answer with a JSON object inside <tool_call> tags. Reason inside <think></think>.",
       "qwen",
       "<think>\n\n</think>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n"
       "</tool_call>",
       true},
      {"[|system|]{% for tool in tools %}<tool>{{ tool | tojson }}</tool>{% endfor %} Call them as "
       "<tool_call>{...}</tool_call>.[|endofturn|][|assistant|]<think>",
       "qwen", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}</tool_call>",
       true},
      {"{% for tool in tools %}{{ tool }}{% endfor %}<seed:think>...</seed:think> then <seed:tool_call>"
       "<function=name><parameter=key>value</parameter></function></seed:tool_call>",
       "seed-oss",
       "<seed:think>hm</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern</"
       "parameter>\n"
       "</function>\n</seed:tool_call>",
       true},
  };
  for (const auto& one : cases) {
    const Format format = FormatOf(one.chat_template);
    EXPECT_EQ(format.family, one.family);
    EXPECT_EQ(format.can_think, one.thinks);
    EXPECT_TRUE(format.supports_tools());
    const auto answer = testing::Parse(format, one.turn);
    EXPECT_EQ(answer.calls, std::vector<std::string>{R"(get_weather{"city":"Bern"})"});
    EXPECT_EQ(answer.text, "");
  }
}

// Where the assistant's turn ends, in one template or another.
size_t EndOfTurn(const std::string& text, size_t from) {
  size_t end = text.size();
  for (const std::string mark : {"<|im_end|>", "<EOS>", "<|tool_response>", "<turn|>", "<|start|>functions.",
                                 "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|observation|>",
                                 "<SPECIAL_12>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>", "[e~[",
                                 "<|message_sep|>", "<|begin|>tool", "[{\"temp\""}) {
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
          "Assistant\n", "<｜Assistant｜>", "]~b]ai\n", "<|CHATBOT_TOKEN|>", "<|assistant_start|>",
          "<|begin|>assistant", "assistant<|role_sep|>\n"}) {
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
  EXPECT_GE(read, 25);
}

}  // namespace
}  // namespace quire::runner::output
