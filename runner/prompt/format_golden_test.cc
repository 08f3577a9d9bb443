// Our formats against the published templates of the fixtures: the same prompts for every conversation that
// those render. Contents are texts here, as requests have them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runner/jinja/json_reader.h"
#include "runner/jinja/template.h"
#include "runner/prompt/format_table.h"
#include "runner/prompt/prompt_template.h"
#include "tests/data/test_data.h"

namespace quire::runner {
namespace {

using nlohmann::ordered_json;

struct Golden {
  std::string_view name;                // a renderer or a family
  std::string_view published;           // a file of the fixtures
  std::string_view from = {}, to = {};  // what is replaced in the published prompts
  bool without_tools = false;           // the published template does not show tools
  // Conversations that the format renders in another way.
  std::set<std::string> other = {};
};

// Published LFM2 templates leave out calls, which Ollama's renderer and ours show in the model's syntax.
// llama.cpp's copy of DeepSeek V3.1's template opens the thinking that it closes; the model card and Ollama
// do not. GLM's shows no content as "None", and Qwen3's leaves out other roles. Granite 3.3's leaves out
// calls, gpt-oss's text beside calls, and all calls but the first; DeepSeek R1's ends an answer once more
// behind calls. Mistral's refuse or leave out text beside calls and join turns; version 3 shows an empty
// system text in another way. Command R7B's shows no text beside calls, no content as "None", and the header
// of an answer also where none is asked for.
const std::set<std::string> kWithCalls = {
    "tool_call_dict",         "tool_call_str_args",  "tool_call_no_tools_arg", "tool_parallel",
    "tool_call_then_gp_text", "reasoning_then_tool", "reasoning_field_tool",   "null_assistant"};

// DeepSeek V3's format is R1's without thinking.
const std::set<std::string> kNoThinking = {
    "tool_call_dict",       "tool_call_str_args",     "tool_call_no_tools_arg",
    "tool_parallel",        "tool_call_then_gp_text", "reasoning_then_tool",
    "reasoning_field_tool", "null_assistant",         "think_on",
    "think_on_tools"};

const std::vector<Golden>& Goldens() {
  static const std::vector<Golden> kGoldens = {
      {"command-r7b",
       "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
       {},
       {},
       false,
       {"user_nogp", "multi_turn_nogp", "assistant_prefill", "tool_call_no_tools_arg", "tool_parallel",
        "tool_call_then_gp_text", "null_assistant"}},
      {"deepseek3.1", "deepseek-ai-DeepSeek-V3.1", "<think></think>", "</think>", true},
      {"deepseek-r1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "<think>\n</think>", "<think>\n", true,
       kWithCalls},
      {"deepseek3", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "<think>\n</think>", "", true, kNoThinking},
      {"gemma3", "gemma-3-it"},
      {"gemma3", "google-gemma-2-2b-it"},
      {"gemma4", "gemma4-E2B-it"},
      {"glm-4.7", "GLM-4.7-Flash", {}, {}, false, {"null_assistant"}},
      {"lfm2", "LFM2-8B-A1B", {}, {}, false, kWithCalls},
      {"gpt-oss",
       "openai-gpt-oss-120b",
       "<|return|>",
       "<|end|>",
       false,
       {"tool_parallel", "tool_call_then_gp_text", "reasoning_then_tool"}},
      {"granite3",
       "ibm-granite-granite-3.3-2B-Instruct",
       {},
       {},
       false,
       {"tool_call_dict", "tool_call_no_tools_arg", "tool_parallel", "tool_call_then_gp_text",
        "reasoning_then_tool", "reasoning_field_tool"}},
      {"granite4", "ibm-granite-granite-4.0"},
      {"laguna", "ollama-laguna_v2"},
      {"mistral-v13", "mistral-common-v13", {}, {}, false, {"bad_user_user"}},
      {"mistral-v3",
       "mistralai-Mistral-Nemo-Instruct-2407",
       {},
       {},
       false,
       {"tool_call_str_args", "tool_call_no_tools_arg", "tool_parallel", "tool_call_then_gp_text",
        "empty_system", "tools_empty_list"}},
      {"nemotron-3-nano", "ollama-nemotron3nano"},
      {"nemotron-3.5-nano", "ollama-nemotron35"},
      {"phi3", "microsoft-Phi-3.5-mini-instruct", "<EOS>", ""},
      {"poolside-v1", "ollama-laguna_v8"},
      {"qwen3", "Qwen-Qwen3-0.6B", {}, {}, false, {"bad_unknown_role", "developer_role"}},
      {"qwen3-coder", "Qwen3-Coder-30B-A3B-Instruct"},
      {"qwen3.5", "Qwen3.5-4B"},
  };
  return kGoldens;
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

ordered_json LoadFixture(std::string_view name) {
  std::ifstream file(test_data::FixturesPath() / "chat_templates" / (std::string(name) + ".json"),
                     std::ios::binary);
  return ordered_json::parse(file);
}

bool HasTextsOnly(const ordered_json& conversation) {
  return std::ranges::none_of(conversation["messages"], [](const ordered_json& message) {
    return message.contains("content") && !message["content"].is_string() && !message["content"].is_null();
  });
}

// With thinking as a request brings it, under both names.
jinja::Value Variables(const ordered_json& conversations, const ordered_json& conversation,
                       bool without_tools) {
  std::vector<std::pair<std::string, jinja::Value>> variables;
  const auto add = [&](const std::string& name, const ordered_json& json) {
    variables.emplace_back(name, jinja::JsonReader(jinja::Trust::kTemplate).Read(json.dump()).value());
  };
  for (const auto& [name, token] : conversations["special_tokens"].items()) add(name, token);
  add("messages", conversation["messages"]);
  add("tools", without_tools ? ordered_json() : conversation["tools"]);
  add("add_generation_prompt", conversation["add_generation_prompt"]);
  for (const auto& [name, value] : conversation["kwargs"].items()) add(name, value);
  return jinja::Value::MakeDict(std::move(variables));
}

std::string SourceOf(std::string_view name) {
  const NamedFormat* format = FindFormat(RendererFormats(), name);
  if (format == nullptr) format = FindFormat(FamilyFormats(), name);
  return format == nullptr ? std::string() : TemplateOf(*format);
}

// The day on which the fixtures were rendered.
jinja::RenderOptions OfTheFixtures() {
  jinja::RenderOptions options;
  options.now = {};
  options.now.tm_year = 2026 - 1900;
  options.now.tm_mday = 15;
  return options;
}

// What published templates and Ollama's reference renderers made of conversations of ours.
TEST(FormatGolden, RendersTheRecordedPrompts) {
  std::ifstream file("runner/prompt/testing/format_prompts.json", std::ios::binary);
  const ordered_json recorded = ordered_json::parse(file);
  for (const auto formats : {RendererFormats(), FamilyFormats()}) {
    for (const NamedFormat& format : formats) {
      const bool plain = format.name == "chatml";
      EXPECT_TRUE(plain || recorded["formats"].contains(format.name)) << format.name;
    }
  }
  for (const auto& [name, golden] : recorded["formats"].items()) {
    const auto format = jinja::Template::Parse(SourceOf(name));
    ASSERT_TRUE(format.has_value()) << name << ": " << format.error().message;
    for (const auto& [conversation, prompt] : golden["prompts"].items()) {
      ordered_json asked = recorded["conversations"][conversation];
      asked["kwargs"] = asked["variables"];
      asked["tools"] = asked.value("tools", ordered_json());
      asked["add_generation_prompt"] = asked.value("add_generation_prompt", true);
      const ordered_json tokens = {
          {"special_tokens", {{"bos_token", golden["bos_token"]}, {"eos_token", "</s>"}}}};
      const auto rendered = format->Render(Variables(tokens, asked, false), OfTheFixtures());
      ASSERT_TRUE(rendered.has_value()) << name << ", " << conversation << ": " << rendered.error().message;
      EXPECT_EQ(*rendered, prompt.get<std::string>()) << name << ", " << conversation;
    }
  }
}

std::vector<api::Message> AsMessages(const ordered_json& list) {
  std::vector<api::Message> messages;
  for (const ordered_json& json : list) {
    api::Message& message = messages.emplace_back();
    message.role = json["role"];
    message.content = json["content"];
    message.tool_name = json.value("name", "");
    message.tool_call_id = json.value("tool_call_id", "");
    for (const ordered_json& call : json.value("tool_calls", ordered_json::array())) {
      message.tool_calls.push_back(
          {call["id"], call["function"]["name"], call["function"]["arguments"].dump()});
    }
  }
  return messages;
}

// As a request brings them: the same prompts, in which no text of the request is ever taken for the format's.
TEST(FormatGolden, TextsOfARequestAreNeverTheFormats) {
  std::ifstream file("runner/prompt/testing/format_prompts.json", std::ios::binary);
  const ordered_json recorded = ordered_json::parse(file);
  for (const auto& [name, golden] : recorded["formats"].items()) {
    const auto format =
        PromptTemplate::Parse(SourceOf(name), {{"bos_token", golden["bos_token"]}, {"eos_token", "</s>"}});
    ASSERT_TRUE(format.has_value()) << name;
    for (const std::string conversation : {"turns", "calls"}) {
      if (!golden["prompts"].contains(conversation)) continue;
      SCOPED_TRACE(name + ", " + conversation);
      const auto messages = AsMessages(recorded["conversations"][conversation]["messages"]);
      const auto segments = (*format)->Render(messages, {});
      ASSERT_TRUE(segments.has_value()) << segments.error().message;
      std::string whole;
      std::string of_format;
      for (const PromptSegment& segment : *segments) {
        whole += segment.text;
        if (segment.from_template) of_format += segment.text + '\n';
      }
      EXPECT_EQ(whole, golden["prompts"][conversation].get<std::string>());
      for (const std::string text : {"Be brief.", "Bye", "Weather?", "I look.", "12 C", "Thanks", "Bern"}) {
        EXPECT_EQ(of_format.find(text), std::string::npos) << text;
      }
    }
  }
}

TEST(FormatGolden, RendersWhatThePublishedTemplatesRender) {
  if (!std::filesystem::exists(test_data::FixturesPath() / "chat_templates")) {
    GTEST_SKIP() << "no published templates in " << test_data::FixturesPath();
  }
  const ordered_json conversations = LoadFixture("conversations");
  const jinja::RenderOptions options = OfTheFixtures();
  for (const Golden& golden : Goldens()) {
    SCOPED_TRACE(std::string(golden.name) + " as " + std::string(golden.published));
    const auto format = jinja::Template::Parse(SourceOf(golden.name));
    ASSERT_TRUE(format.has_value()) << format.error().message;
    int equal = 0;
    const ordered_json published = LoadFixture(golden.published);
    for (const ordered_json& result : published["results"]) {
      const std::string id = result["case"];
      const auto conversation = std::ranges::find(
          conversations["cases"], id, [](const ordered_json& one) { return one["id"].get<std::string>(); });
      ASSERT_NE(conversation, conversations["cases"].end());
      if (!result.contains("expected") || !HasTextsOnly(*conversation)) continue;
      const auto rendered =
          format->Render(Variables(conversations, *conversation, golden.without_tools), options);
      if (!rendered && golden.other.contains(id)) continue;
      ASSERT_TRUE(rendered.has_value()) << id << ": " << rendered.error().message;
      const std::string expected = Replaced(result["expected"], golden.from, golden.to);
      const bool same = *rendered == expected;
      EXPECT_EQ(same, !golden.other.contains(id)) << id << ":\n" << *rendered << "\npublished:\n" << expected;
      equal += same ? 1 : 0;
    }
    EXPECT_GT(equal, 10);
    std::printf("%-20s %-45s equal on %d conversations\n", std::string(golden.name).c_str(),
                std::string(golden.published).c_str(), equal);
  }
}

}  // namespace
}  // namespace quire::runner
