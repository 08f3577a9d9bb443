// A longer conversation's prompt begins with the shorter one's tokens, wherever the template writes it so.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/tokenizer.h"
#include "tests/data/test_data.h"

namespace quire::runner {
namespace {

using nlohmann::ordered_json;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string Join(const std::vector<PromptSegment>& segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

std::vector<TokenId> Encode(const Tokenizer& tokenizer, const std::vector<PromptSegment>& prompt) {
  std::vector<tokenizer::Segment> segments;
  for (const PromptSegment& segment : prompt) segments.push_back({segment.text, segment.from_template});
  return tokenizer.EncodeSegments(segments).value();
}

api::Message MakeMessage(const char* role, const char* content) {
  api::Message message;
  message.role = role;
  message.content = content;
  return message;
}

// Three turns; the prompts are what the model is asked after each question.
const std::vector<api::Message>& Conversation() {
  static const std::vector<api::Message> kMessages = {
      MakeMessage("user", "What is 2 + 2?"), MakeMessage("assistant", "It is 4.\nSure."),
      MakeMessage("user", "And  caf\u00E9 \u4F60\u597D?"), MakeMessage("assistant", "Hello there"),
      MakeMessage("user", "Thanks!")};
  return kMessages;
}

class PromptPrefix : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = test_data::FixturesPath() / "chat_templates";
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (entry.path().extension() != ".json" || entry.path().stem() == "conversations") continue;
      const auto golden = ordered_json::parse(ReadFile(entry.path()));
      const auto parsed =
          PromptTemplate::Parse(golden["template"].get<std::string>(),
                                PromptTemplate::Tokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
      ASSERT_TRUE(parsed) << parsed.error().message;
      templates_.emplace(golden["name"].get<std::string>(), *parsed);
    }
    if (templates_.empty()) GTEST_SKIP() << "no fixtures in " << folder;
    for (const char* name : {"bpe_gpt2", "bpe_llama3", "bpe_qwen2", "bpe_o200k", "bpe_tekken",
                             "spm_llama_style", "spm_gemma_style", "spm_unigram"}) {
      const auto path = test_data::FixturesPath() / "tokenizers" / (std::string(name) + ".tokenizer.json");
      const auto tokenizer = Tokenizer::FromTokenizerJson(ReadFile(path), nullptr);
      ASSERT_TRUE(tokenizer) << tokenizer.error().message;
      tokenizers_.emplace(name, *tokenizer);
    }
  }

  std::map<std::string, std::shared_ptr<const PromptTemplate>> templates_;
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers_;
};

// Templates that write the header of an answer that is to come otherwise than that of one that is there: with
// an empty or open thinking block, or with other white space. The rest of the prompt is the same, see below.
const std::set<std::string> kOtherHeaders = {
    "CohereForAI-c4ai-command-r-plus-tool_use",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "GLM-4.7-Flash",
    "MiniMax-M2",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "NVIDIA-Nemotron-Nano-v2",
    "Qwen3.5-4B",
    "StepFun3.5-Flash",
    "cz-chatqa",
    "cz-falcon-instruct",
    "cz-gemma-it",
    "cz-llama-3-instruct",
    "cz-phi-3",
    "cz-phi-3-small",
    "cz-saiga",
    "cz-solar-instruct",
    "cz-vicuna",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "google-gemma-4-31B-it",
    "google-gemma-4-31B-it-interleaved",
    "ollama-nemotron35",
    "ollama-nemotron3nano",
    "qwen3.5-0.8B",
};

// One prompt and that of the conversation two messages on.
struct Pair {
  std::string name;
  std::vector<PromptSegment> shorter;
  std::vector<PromptSegment> longer;
  std::string last_content;  // of the shorter
};

std::vector<Pair> Pairs(const std::map<std::string, std::shared_ptr<const PromptTemplate>>& templates) {
  std::vector<Pair> pairs;
  const std::span<const api::Message> messages = Conversation();
  for (const auto& [name, prompt_template] : templates) {
    for (const size_t count : {size_t{1}, size_t{3}}) {
      auto shorter = prompt_template->Render(messages.first(count), {}, std::tm());
      auto longer = prompt_template->Render(messages.first(count + 2), {}, std::tm());
      EXPECT_TRUE(shorter && longer) << name;
      if (shorter && longer) {
        pairs.push_back({name, *std::move(shorter), *std::move(longer), messages[count - 1].content});
      }
    }
  }
  return pairs;
}

size_t CommonPrefix(const auto& a, const auto& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Where a prompt ends in white space, its last token may be another one once the answer's text follows.
TEST_F(PromptPrefix, ALongerConversationBeginsWithTheShorterOnesTokens) {
  int compared = 0;
  int whole = 0;
  for (const Pair& pair : Pairs(templates_)) {
    SCOPED_TRACE(pair.name);
    const bool same_text = Join(pair.longer).starts_with(Join(pair.shorter));
    EXPECT_EQ(same_text, !kOtherHeaders.contains(pair.name));
    if (!same_text) continue;
    for (const auto& [kind, tokenizer] : tokenizers_) {
      const auto shorter = Encode(*tokenizer, pair.shorter), longer = Encode(*tokenizer, pair.longer);
      const size_t common = CommonPrefix(shorter, longer);
      const char last = pair.shorter.back().text.back();
      EXPECT_GE(common, shorter.size() - (last == ' ' || last == '\n' ? 1 : 0)) << kind;
      ++compared;
      whole += common == shorter.size() ? 1 : 0;
    }
  }
  EXPECT_EQ(compared, 704);
  EXPECT_EQ(whole, 676);
}

// Whatever the template: all tokens up to the end of the last message are shared, but for one that goes
// beyond it.
TEST_F(PromptPrefix, EverythingUpToTheLastMessageIsShared) {
  for (const Pair& pair : Pairs(templates_)) {
    SCOPED_TRACE(pair.name);
    const std::string shorter = Join(pair.shorter), longer = Join(pair.longer);
    const size_t common = CommonPrefix(shorter, longer);
    const size_t content = shorter.rfind(pair.last_content);
    ASSERT_NE(content, std::string::npos);
    EXPECT_GE(common, content + pair.last_content.size());
    for (const auto& [kind, tokenizer] : tokenizers_) {
      const auto tokens = Encode(*tokenizer, pair.shorter);
      size_t shared = CommonPrefix(tokens, Encode(*tokenizer, pair.longer));
      size_t bytes = 0;
      for (size_t i = 0; i < shared; ++i) bytes += tokenizer->TokenBytes(tokens[i]).size();
      const size_t next = shared < tokens.size() ? tokenizer->TokenBytes(tokens[shared]).size() : 0;
      EXPECT_GE(bytes + next, content + pair.last_content.size()) << kind;
    }
  }
}

}  // namespace
}  // namespace quire::runner
