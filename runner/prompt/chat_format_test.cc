#include "runner/prompt/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "runner/prompt/format_table.h"
#include "runner/prompt/prompt_template.h"

namespace quire::runner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct FakeFiles : weights::ModelFiles {
  weights::Format format() const override { return weights::Format::kGguf; }
  std::string path() const override { return "model"; }
  std::string architecture() const override { return of; }
  const weights::Tensor* Find(std::string_view) const override { return nullptr; }
  const std::vector<weights::Tensor>& tensors() const override { return no_tensors; }
  const nlohmann::ordered_json& config() const override { return metadata; }
  const nlohmann::ordered_json& generation_config() const override { return none; }
  const nlohmann::ordered_json& tokenizer_config() const override { return none; }
  const std::string& tokenizer_json() const override { return empty; }
  std::string chat_template() const override { return source; }
  std::vector<int32_t> end_of_generation_ids() const override { return {}; }

  std::vector<weights::Tensor> no_tensors;
  nlohmann::ordered_json metadata = nlohmann::ordered_json::object(), none;
  std::string empty, source, of = "llama";
};

ChatFormat Choose(const FakeFiles& files, const std::set<std::string, std::less<>>& tokens,
                  const api::ipc::PromptNames& names = {}, bool go_template = false) {
  return ChooseChatFormat(files, names, go_template,
                          [&](std::string_view token) { return tokens.contains(token); });
}

std::string PromptOf(const ChatFormat& format) {
  const auto parsed = PromptTemplate::Parse(format.source, {{"bos_token", "<s>"}});
  EXPECT_TRUE(parsed.has_value());
  const auto segments = (*parsed)->Render(std::vector<api::Message>{{.role = "user", .content = "Hi"}}, {});
  std::string text;
  for (const PromptSegment& segment : *segments) text += segment.text;
  return text;
}

const std::set<std::string, std::less<>> kChatMlTokens = {"<|im_start|>", "<|im_end|>"};

TEST(ChatFormat, TheFilesOwnTemplateCountsWithoutAWord) {
  FakeFiles files;
  files.source = "own";
  const ChatFormat format = Choose(files, kChatMlTokens, {.renderer = "gemma4", .parser = "gemma4"});
  EXPECT_EQ(format.source, "own");
  EXPECT_EQ(format.answers, "");
  EXPECT_THAT(format.notes, IsEmpty());
}

TEST(ChatFormat, ARendererNamesTheFormat) {
  const ChatFormat format = Choose({}, kChatMlTokens, {.renderer = "gemma4-large", .parser = "gemma4"});
  EXPECT_EQ(PromptOf(format), "<s><|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n<channel|>");
  EXPECT_THAT(format.answers, HasSubstr("<|tool_call>"));
  EXPECT_THAT(format.notes, ElementsAre("no chat template: using the format of RENDERER gemma4-large"));
}

// No prompts are published for "glimmer".
TEST(ChatFormat, AnUnknownRendererIsRefusedByName) {
  for (const std::string name : {"nobody-1", "glimmer"}) {
    const ChatFormat format = Choose({}, kChatMlTokens, {.renderer = name});
    EXPECT_EQ(format.source, "");
    EXPECT_THAT(format.refusal, HasSubstr("RENDERER \"" + name + "\""));
    EXPECT_THAT(format.refusal, HasSubstr("TEMPLATE"));
    EXPECT_THAT(format.notes, ElementsAre(HasSubstr("RENDERER " + name + " is not known")));
  }
}

TEST(ChatFormat, AnUnknownParserIsNamed) {
  const ChatFormat format = Choose({}, {}, {.renderer = "gemma4", .parser = "nobody-2"});
  EXPECT_THAT(format.notes, ElementsAre(HasSubstr("RENDERER gemma4"), HasSubstr("PARSER nobody-2")));
}

TEST(ChatFormat, PassthroughReadsAnswersAsText) {
  EXPECT_TRUE(Choose({}, {}, {.renderer = "gemma4", .parser = "passthrough"}).plain_answers);
}

TEST(ChatFormat, TheFamilyAndItsTokensShowTheFormat) {
  FakeFiles files;
  files.of = "gemma3";
  const std::set<std::string, std::less<>> tokens = {"<start_of_turn>", "<end_of_turn>"};
  ChatFormat format = Choose(files, tokens);
  EXPECT_EQ(PromptOf(format), "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_THAT(format.notes, ElementsAre(HasSubstr("Gemma 3 format, guessed")));
  for (const char* name : {"Gemma 3 1b It", "gemma-3-1b-it-qat", "X Instruct", "chat"}) {
    files.metadata["general.name"] = name;
    EXPECT_THAT(Choose(files, tokens).notes,
                ElementsAre("no chat template: using the Gemma 3 format of the family"));
  }
  for (const char* name : {"Gemma 3 1b Pt", "Italian", "permit"}) {
    files.metadata["general.name"] = name;
    EXPECT_THAT(Choose(files, tokens).notes, ElementsAre(HasSubstr("guessed"))) << name;
  }
  files.of = "llama";
  EXPECT_EQ(Choose(files, tokens).source, "");
}

TEST(ChatFormat, RelativesOfAFamilyDifferInTheirTokens) {
  struct Case {
    const char* architecture;
    std::set<std::string, std::less<>> tokens;
    const char* begin;  // of the prompt; empty: no format fits
    const char* name = "";
  };
  const std::set<std::string, std::less<>> deepseek = {"<｜User｜>", "<｜Assistant｜>",
                                                       "<｜tool▁calls▁begin｜>"};
  const auto with = [](std::set<std::string, std::less<>> tokens, const char* more) {
    tokens.insert(more);
    return tokens;
  };
  const std::set<std::string, std::less<>> command = {"<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"};
  const std::set<std::string, std::less<>> mistral = {"[INST]", "[AVAILABLE_TOOLS]"};
  const std::set<std::string, std::less<>> phi = {"<|user|>", "<|end|>"};
  const std::set<std::string, std::less<>> phi4 = {"<|im_start|>", "<|im_end|>", "<|im_sep|>"};
  const Case cases[] = {
      {"deepseek2", deepseek, "<s><｜User｜>Hi<｜Assistant｜>"},
      {"deepseek2", with(deepseek, "<think>"), "<s><｜User｜>Hi<｜Assistant｜><think>\n"},
      {"deepseek2", with(with(deepseek, "<think>"), "<｜search▁begin｜>"),
       "<s><｜User｜>Hi<｜Assistant｜></think>"},
      {"qwen2", with(deepseek, "<think>"), "<s><｜User｜>Hi<｜Assistant｜><think>\n"},
      {"qwen2", deepseek, ""},
      {"gpt-oss", {"<|start|>", "<|channel|>"}, "<|start|>system<|message|>You are ChatGPT"},
      {"gpt_oss", {"<|start|>", "<|channel|>"}, "<|start|>system<|message|>You are ChatGPT"},
      {"granite", {"<|start_of_role|>", "<|end_of_role|>"}, ""},
      {"granite",
       {"<|start_of_role|>", "<|start_of_cite|>"},
       "<|start_of_role|>system<|end_of_role|>Knowledge"},
      {"granitehybrid",
       {"<|start_of_role|>", "<|end_of_role|>"},
       "<|start_of_role|>system<|end_of_role|>You are"},
      {"phi3", phi, "<|user|>\nHi<|end|>\n<|assistant|>\n"},
      {"granite",
       {"<|start_of_role|>", "<tool_call>"},
       "<|start_of_role|>system<|end_of_role|>You are a helpful assistant. Please"},
      {"granite", {"<|start_of_role|>", "<tool_call>"}, "", "Granite-4.1-8b"},
      {"phi3", with(phi, "<|tool|>"), "<|user|>Hi<|end|><|assistant|>"},
      {"phi3", with(phi, "<|tool|>"), "", "Phi 4 Mini Reasoning"},
      {"phi3", phi4, "<|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant<|im_sep|>"},
      {"phi3", with(phi4, "<think>"), ""},
      {"llama", phi4, ""},  // no ChatML
      {"command-r", command, "<s><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|>"},
      {"cohere2", with(command, "<|START_RESPONSE|>"), ""},
      {"cohere2", with(command, "<|START_RESPONSE|>"), "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|># System",
       "C4Ai Command R7B 12 2024"},
      {"llama", mistral, "<s>[INST]Hi[/INST]"},
      {"llama", with(mistral, "▁the"), "<s>[INST] Hi[/INST]"},
      {"llama", with(mistral, "[SYSTEM_PROMPT]"), ""},
      {"llama", with(with(mistral, "[SYSTEM_PROMPT]"), "[TOOL_CONTENT]"), "<s>[INST]Hi[/INST]"},
      {"llama", with(with(mistral, "▁the"), "[TOOL_CONTENT]"), "<s>[INST] Hi[/INST]"},
      {"mistral3", with(mistral, "[ARGS]"), "<s>[INST]Hi[/INST]"},
  };
  for (const Case& one : cases) {
    FakeFiles files;
    files.of = one.architecture;
    files.metadata["general.name"] = one.name;
    const ChatFormat format = Choose(files, one.tokens);
    const std::string prompt = format.source.empty() ? "" : PromptOf(format);
    EXPECT_EQ(prompt.empty(), *one.begin == 0) << one.architecture << prompt;
    EXPECT_TRUE(prompt.starts_with(one.begin)) << one.architecture << ": " << prompt;
  }
}

// A format's text shows how answers are written, and versions of Mistral's differ there.
TEST(ChatFormat, OnlyLaterMistralFormatsHaveTheirMarks) {
  const std::set<std::string, std::less<>> v3 = {"[INST]", "[AVAILABLE_TOOLS]"};
  std::set<std::string, std::less<>> tokens = v3;
  tokens.insert({"[SYSTEM_PROMPT]", "[TOOL_CONTENT]"});
  const auto marks = [](const FakeFiles& files, const std::set<std::string, std::less<>>& of) {
    const std::string source = Choose(files, of).source;
    std::string found;
    for (const char* mark : {"[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]"})
      if (source.find(mark) != std::string::npos) found += mark;
    return found;
  };
  FakeFiles files;
  EXPECT_EQ(marks(files, v3), "");
  EXPECT_EQ(marks(files, tokens), "[TOOL_CONTENT]");
  tokens.insert({"[CALL_ID]", "[ARGS]"});
  EXPECT_EQ(marks(files, tokens), "[ARGS]");
  files.metadata["general.name"] = "Mistral Small 3.2 24B Instruct 2506";
  EXPECT_EQ(marks(files, tokens), "[TOOL_CONTENT][CALL_ID][ARGS]");
}

TEST(ChatFormat, MistralsIdsHaveNineCharacters) {
  for (const char* name : {"mistral-v3", "mistral-v3-spm", "mistral-v7", "mistral-v11"}) {
    const auto parsed = PromptTemplate::Parse(TemplateOf(*FindFormat(FamilyFormats(), name)), {});
    ASSERT_TRUE(parsed.has_value()) << name;
    const std::vector<api::Message> messages = {
        {.role = "user", .content = "Hi"},
        {.role = "assistant", .content = "", .tool_calls = {{"call_of_another", "f", "{}"}}},
        {.role = "tool", .content = "x", .tool_call_id = "call_of_another"}};
    const auto segments = (*parsed)->Render(messages, {});
    ASSERT_TRUE(segments.has_value()) << name << segments.error().message;
    std::string text;
    for (const PromptSegment& segment : *segments) text += segment.text;
    EXPECT_EQ(text.find("call_of_another"), std::string::npos) << text;
  }
}

TEST(ChatFormat, LargeGemma4ModelsHaveNoEmbeddingsOfLayers) {
  FakeFiles files;
  files.of = "gemma4";
  const std::set<std::string, std::less<>> tokens = {"<|turn>", "<turn|>"};
  EXPECT_THAT(PromptOf(Choose(files, tokens)), HasSubstr("thought"));
  files.metadata["gemma4.embedding_length_per_layer_input"] = 256;
  EXPECT_EQ(PromptOf(Choose(files, tokens)), "<s><|turn>user\nHi<turn|>\n<|turn>model\n");
}

TEST(ChatFormat, ChatMlNeedsItsTokens) {
  const ChatFormat format = Choose({}, kChatMlTokens);
  EXPECT_EQ(PromptOf(format), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(format.notes, ElementsAre(HasSubstr("ChatML format, guessed")));
  const ChatFormat none = Choose({}, {"<|im_start|>"});
  EXPECT_EQ(none.source, "");
  EXPECT_THAT(none.refusal, HasSubstr("no chat template"));
  EXPECT_THAT(none.notes, ElementsAre(HasSubstr("chats are refused")));
}

TEST(ChatFormat, ATemplateOfTheManifestIsTheUsersWish) {
  const ChatFormat format = Choose({}, kChatMlTokens, {.parser = "gemma4"}, /*go_template=*/true);
  EXPECT_EQ(format.source, "");
  EXPECT_THAT(format.answers, HasSubstr("<|tool_call>"));
  EXPECT_THAT(format.notes, IsEmpty());
}

TEST(ChatFormat, EveryNameHasAFileThatParses) {
  for (const auto formats : {RendererFormats(), FamilyFormats(), ParserFormats()}) {
    for (const NamedFormat& format : formats) {
      if (format.file.empty() && format.name == "passthrough") continue;
      SCOPED_TRACE(format.name);
      const std::string source = TemplateOf(format);
      EXPECT_NE(source, format.file.empty() ? "" : format.settings);
      EXPECT_TRUE(PromptTemplate::Parse(source, {}).has_value());
    }
  }
}

}  // namespace
}  // namespace quire::runner
