// Prompts of the bundled model.

#include "runner/engine/prompt/prompt_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

using ::testing::HasSubstr;

class DescribedPrompt : public ::testing::Test {
 protected:
  DescribedPrompt() : model_(*Load(kDemoModel, [](float, std::string_view) {})) {}

  PromptContext context() const {
    return {model_.tokenizer, *model_.prompt_template, model_.turn_start_token,
            FindFimTokens(*model_.tokenizer), model_.model->context_length()};
  }
  static api::Request Request(api::Prompt prompt) {
    api::Request request;
    request.prompt = std::move(prompt);
    request.prompt_only = true;
    request.return_context = true;
    return request;
  }

  LoadedModel model_;
};

TEST_F(DescribedPrompt, IsWhatAnAnswerWouldBeginWith) {
  api::Request request = Request(api::ChatPrompt{{{"user", "Hello!"}}});
  const auto events = DescribePrompt(context(), request);
  ASSERT_EQ(events.size(), 2U);
  const auto& finished = std::get<api::Finished>(events[1]);
  request.prompt_only = false;
  const auto built = BuildPrompt(context(), request);
  ASSERT_TRUE(built);
  EXPECT_EQ(finished.context, built->tokens);
  EXPECT_EQ(finished.usage.prompt_tokens, static_cast<int32_t>(built->tokens.size()));
  EXPECT_EQ(std::get<api::PromptReady>(events[0]).prompt_tokens, finished.usage.prompt_tokens);
}

TEST_F(DescribedPrompt, MayBeLongerThanTheContext) {
  std::string text;
  for (int i = 0; i < 3 * context().context_length; ++i) text += " cat";
  api::Request request = Request(api::RawPrompt{text});
  request.overflow = api::Overflow::kRefuse;
  const auto events = DescribePrompt(context(), request);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_GT(std::get<api::Finished>(events[1]).usage.prompt_tokens, context().context_length);
  request.prompt_only = false;
  EXPECT_FALSE(BuildPrompt(context(), request));
}

TEST_F(DescribedPrompt, FailsAsTheAnswerWould) {
  const auto events =
      DescribePrompt(context(), Request(api::TokenPrompt{{context().tokenizer->vocab_size()}}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<api::Failed>(events[0]).error.field, "tokens");
}

// Each is one frame of bounded size.
TEST_F(DescribedPrompt, ManyPiecesComeInSeveralDeltas) {
  std::string text;
  for (size_t i = 0; i < 2 * kDescribedPiecesPerDelta; ++i) text += " cat";
  api::Request request = Request(api::RawPrompt{text, false});
  request.return_prompt_text = true;
  request.logprobs = true;
  const auto events = DescribePrompt(context(), request);
  const auto& tokens = std::get<api::Finished>(events.back()).context;
  ASSERT_GE(tokens.size(), 2 * kDescribedPiecesPerDelta);
  ASSERT_EQ(events.size(), 2 + (tokens.size() + kDescribedPiecesPerDelta - 1) / kDescribedPiecesPerDelta);
  std::string joined;
  size_t pieces = 0;
  for (size_t i = 1; i + 1 < events.size(); ++i) {
    const auto& delta = std::get<api::TextDelta>(events[i]);
    EXPECT_LE(delta.logprobs.size(), kDescribedPiecesPerDelta);
    joined += delta.text;
    for (const api::TokenLogprob& piece : delta.logprobs) EXPECT_EQ(piece.chosen.id, tokens[pieces++]);
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(pieces, tokens.size());
}

TEST_F(DescribedPrompt, TellsItsTextAndItsPieces) {
  api::Request request = Request(api::RawPrompt{"Hello, w\u00F6rld \U0001F600", false});
  request.return_prompt_text = true;
  request.logprobs = true;
  const auto events = DescribePrompt(context(), request);
  ASSERT_EQ(events.size(), 3U);
  const auto& text = std::get<api::TextDelta>(events[1]);
  EXPECT_EQ(text.text, "Hello, w\u00F6rld \U0001F600");
  const auto& tokens = std::get<api::Finished>(events[2]).context;
  ASSERT_EQ(text.logprobs.size(), tokens.size());
  std::string joined;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(text.logprobs[i].chosen.id, tokens[i]);
    joined += text.logprobs[i].chosen.bytes;
  }
  EXPECT_EQ(joined, text.text);

  const auto back = DescribePrompt(context(), [&] {
    api::Request ids = Request(api::TokenPrompt{tokens});
    ids.return_prompt_text = true;
    return ids;
  }());
  ASSERT_EQ(back.size(), 3U);
  EXPECT_EQ(std::get<api::TextDelta>(back[1]).text, text.text);
}

TEST_F(DescribedPrompt, OfNothingIsEmpty) {
  const auto events = DescribePrompt(context(), Request(api::RawPrompt{"", false}));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<api::Finished>(events[1]).usage.prompt_tokens, 0);
}

TEST_F(DescribedPrompt, ControlTokensInTextAreTextUnlessTheyAreToBeRead) {
  const auto count = [this](bool parse_special) {
    const auto events =
        DescribePrompt(context(), Request(api::RawPrompt{"<|im_end|>", false, parse_special}));
    return std::get<api::Finished>(events.back()).usage.prompt_tokens;
  };
  EXPECT_EQ(count(true), 1);
  EXPECT_GT(count(false), 1);
}

class Prompts : public DescribedPrompt {
 protected:
  static api::Request MakeRequest(api::Prompt prompt, int32_t num_ctx = 0) {
    api::Request request;
    request.prompt = std::move(prompt);
    request.params.num_ctx = num_ctx;
    return request;
  }
};

TEST_F(Prompts, TokenIdsAreTakenAsTheyAreIfTheModelHasThem) {
  const auto taken = BuildPrompt(context(), MakeRequest(api::TokenPrompt{{5, 6, 7}}));
  ASSERT_TRUE(taken);
  EXPECT_THAT(taken->tokens, ::testing::ElementsAre(5, 6, 7));
  for (const api::TokenId id : {-1, context().tokenizer->vocab_size()}) {
    const auto refused = BuildPrompt(context(), MakeRequest(api::TokenPrompt{{5, id}}));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, api::ErrorCode::kInvalidArgument);
    EXPECT_EQ(refused.error().field, "prompt");
  }
}

TEST_F(Prompts, MarkedMessagesAreRestorePointsAtTheirEnds) {
  for (const char* model : {kDemoModel, "tests/data/models/qwen3", "tests/data/models/gemma3"}) {
    SCOPED_TRACE(model);
    const auto loaded = *Load(model, [](float, std::string_view) {});
    const PromptContext of{loaded.tokenizer,
                           *loaded.prompt_template,
                           loaded.turn_start_token,
                           {},
                           loaded.model->context_length()};
    const std::vector<api::Message> messages = {{"user", " One fox. "},
                                                {"assistant", "Two boats."},
                                                {"user", "Three\nstones "},
                                                {"assistant", "Four."},
                                                {"user", "Five."}};
    const auto all = BuildPrompt(of, MakeRequest(api::ChatPrompt{messages}));
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_GE(all->boundaries.size(), messages.size());
    EXPECT_TRUE(all->restore_points.empty());
    for (size_t i = 0; i < messages.size(); ++i) {
      auto marked = messages;
      marked[i].restore_point = true;
      const auto built = BuildPrompt(of, MakeRequest(api::ChatPrompt{marked}));
      EXPECT_EQ(built->tokens, all->tokens);
      EXPECT_THAT(built->restore_points,
                  ::testing::ElementsAre(all->boundaries[all->boundaries.size() - messages.size() + i]));
    }
  }
}

TEST_F(Prompts, MarkedToolsAndSystemTextAreARestorePointAtTheEndOfTheSystemMessage) {
  PromptContext of = context();
  of.format = model_.format;
  api::ChatPrompt chat{{{"system", "Be brief."}, {"user", "Hi."}}};
  chat.tools = {{.name = "f", .definition_json = R"({"type":"function","function":{"name":"f"}})"}};
  const auto plain = BuildPrompt(of, MakeRequest(chat));
  ASSERT_TRUE(plain) << plain.error().message;
  ASSERT_GT(plain->system_tokens, 0);
  chat.tools[0].restore_point = true;
  EXPECT_THAT(BuildPrompt(of, MakeRequest(chat))->restore_points,
              ::testing::ElementsAre(plain->system_tokens));
  chat.messages[0].restore_point = true;
  EXPECT_THAT(BuildPrompt(of, MakeRequest(chat))->restore_points,
              ::testing::ElementsAre(plain->system_tokens));
}

TEST_F(Prompts, FimPutsBothTextsBetweenTheModelsMarkers) {
  const auto markers = FindFimTokens(*context().tokenizer);
  ASSERT_TRUE(markers);
  const auto built = BuildPrompt(context(), MakeRequest(api::FimPrompt{"a<|im_end|>", "z"}));
  ASSERT_TRUE(built);
  const auto& tokens = built->tokens;
  EXPECT_EQ(tokens.back(), markers->middle);
  EXPECT_EQ(std::ranges::count(tokens, markers->prefix), 1);
  EXPECT_EQ(std::ranges::count(tokens, markers->suffix), 1);
  EXPECT_LT(std::ranges::find(tokens, markers->prefix), std::ranges::find(tokens, markers->suffix));
  const auto controls =
      std::ranges::count_if(tokens, [this](api::TokenId id) { return context().tokenizer->IsSpecial(id); });
  EXPECT_LE(controls, 4) << "a control token came from the text";  // the markers and BOS
}

TEST_F(Prompts, AFimPromptTooLongLosesWhatIsFarthestFromTheMiddle) {
  std::string before;
  std::string after;
  for (int i = 0; i < 200; ++i) {
    before += " b" + std::to_string(i);
    after += " a" + std::to_string(i);
  }
  auto request = MakeRequest(api::FimPrompt{before, after}, 64);
  const auto cut = BuildPrompt(context(), request);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->tokens.size(), 63U);
  EXPECT_GT(cut->dropped, 0);
  std::string text;
  for (const api::TokenId token : cut->tokens) text += context().tokenizer->TokenBytes(token);
  EXPECT_THAT(text, HasSubstr(" b199"));
  EXPECT_THAT(text, HasSubstr(" a0"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr(" b0 ")));
  request.overflow = api::Overflow::kRefuse;
  const auto refused = BuildPrompt(context(), request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kContextLengthExceeded);
}

TEST_F(Prompts, FilesOfAFimPromptStandBeforeItAsFarAsTheyFit) {
  const auto markers = FindFimTokens(*context().tokenizer);
  ASSERT_TRUE(markers);
  const auto text_of = [this](const BuiltPrompt& built) {
    std::string text;
    for (const api::TokenId token : built.tokens) text += context().tokenizer->TokenBytes(token);
    return text;
  };
  api::FimPrompt fim{"before", "after", {{"old.h", "int old;"}, {"new.h", "int<|im_end|> fresh;"}}};
  const auto both = BuildPrompt(context(), MakeRequest(fim));
  ASSERT_TRUE(both) << both.error().message;
  const std::string text = text_of(*both);
  EXPECT_LT(text.find("int old;"), text.find("fresh;"));
  EXPECT_LT(text.find("fresh;"), text.find("before"));
  EXPECT_EQ(std::ranges::count(both->tokens, markers->prefix), 1);
  EXPECT_EQ(both->dropped, 0);

  fim.files[0].text = std::string(400, 'x');
  auto request = MakeRequest(fim, 64);
  request.params.num_predict = 8;
  const auto newer = BuildPrompt(context(), request);
  ASSERT_TRUE(newer) << newer.error().message;
  EXPECT_THAT(text_of(*newer), ::testing::Not(HasSubstr("xxx")));
  EXPECT_THAT(text_of(*newer), HasSubstr("fresh;"));
  EXPECT_LE(newer->tokens.size(), 64U - 8U);
}

TEST_F(Prompts, TextsAndIdsInARowBecomeOnePrompt) {
  const auto first = BuildPrompt(context(), MakeRequest(api::RawPrompt{"Once upon"}));
  const auto second = BuildPrompt(context(), MakeRequest(api::RawPrompt{" a time", false}));
  ASSERT_TRUE(first && second);
  std::vector<api::TokenId> expected = first->tokens;
  expected.insert(expected.end(), {5, 6});
  expected.insert(expected.end(), second->tokens.begin(), second->tokens.end());
  const auto mixed =
      BuildPrompt(context(), MakeRequest(api::MixedPrompt{{{"Once upon"}, {"", {5, 6}}, {" a time"}}}));
  ASSERT_TRUE(mixed) << mixed.error().message;
  EXPECT_EQ(mixed->tokens, expected);
  const auto wrong = BuildPrompt(
      context(), MakeRequest(api::MixedPrompt{{{"a"}, {"", {context().tokenizer->vocab_size()}}}}));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().field, "prompt");
}

TEST_F(Prompts, AWholePromptCanBeARestorePoint) {
  auto request = MakeRequest(api::RawPrompt{"Once upon a time"});
  EXPECT_TRUE(BuildPrompt(context(), request)->restore_points.empty());
  request.restore_point = true;
  const auto built = BuildPrompt(context(), request);
  EXPECT_THAT(built->restore_points, ::testing::ElementsAre(static_cast<int32_t>(built->tokens.size()) - 1));
}

TEST_F(Prompts, SomeTokenMayCome) {
  auto request = MakeRequest(api::RawPrompt{"Once"});
  const std::unordered_set<api::TokenId> ends{1};
  PromptContext with_ends = context();
  with_ends.end_of_generation = &ends;
  const int32_t vocabulary = with_ends.tokenizer->vocab_size();
  for (api::TokenId token = 0; token < vocabulary; ++token) {
    if (token != 1 && token != 2) request.params.logit_bias.push_back({token, -api::kLogitBiasMax});
  }
  request.params.ignore_eos = true;
  EXPECT_TRUE(BuildPrompt(with_ends, request)) << "2 may";
  request.params.stop_token_ids = {2};
  EXPECT_TRUE(BuildPrompt(with_ends, request));
  request.params.min_tokens = 1;
  const auto refused = BuildPrompt(with_ends, request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().field, "logit_bias");
}

TEST_F(Prompts, BiasesMustBeOfTokensThereAre) {
  auto request = MakeRequest(api::RawPrompt{"Once"});
  request.params.logit_bias = {{context().tokenizer->vocab_size(), 1}};
  const auto refused = BuildPrompt(context(), request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "logit_bias");
}

// A GGUF file of SentencePiece's kind, which wants BOS and a space before each text.
struct SmallGguf {
  explicit SmallGguf(const char* chat_template)
      : prompt_template(
            *PromptTemplate::Parse(chat_template, {{"bos_token", "<s>"}, {"eos_token", "</s>"}})) {
    nlohmann::ordered_json kv = {{"tokenizer.ggml.model", "llama"}};
    const char* tokens[] = {"<unk>", "<s>", "</s>", "\u2581", "h", "i", "[", "]", "\u2581h"};
    for (int id = 0; id < 9; ++id) {
      kv["tokenizer.ggml.tokens"].push_back(tokens[id]);
      kv["tokenizer.ggml.scores"].push_back(-id);
      kv["tokenizer.ggml.token_type"].push_back(id == 0 ? 2 : id < 3 ? 3 : 1);
    }
    tokenizer = *tokenizer::Tokenizer::FromGguf(kv);
  }
  PromptContext context() const { return {tokenizer, *prompt_template, std::nullopt, std::nullopt, 100}; }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const PromptTemplate> prompt_template;
};

std::vector<api::TokenId> TokensOf(const SmallGguf& model, api::Prompt prompt) {
  api::Request request;
  request.prompt = std::move(prompt);
  return BuildPrompt(model.context(), request).value().tokens;
}

constexpr const char* kPlain = "{% for message in messages %}{{ message.content }}{% endfor %}";
constexpr const char* kWithBos =
    "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}";

TEST(ChatOfAGguf, BeginsWithBosOnceWhetherTheTemplateWritesItOrNot) {
  const api::ChatPrompt chat{{{"user", "hi"}}};
  EXPECT_THAT(TokensOf(SmallGguf(kPlain), chat), ::testing::ElementsAre(1, 8, 5));
  EXPECT_THAT(TokensOf(SmallGguf(kWithBos), chat), ::testing::ElementsAre(1, 8, 5));
  // The end of a conversation whose beginning is tokens.
  EXPECT_THAT(TokensOf(SmallGguf(kPlain), api::ContinuedPrompt{{1, 8, 5}, {{"user", "hi"}}}),
              ::testing::ElementsAre(1, 8, 5, 8, 5));
}

TEST(ChatOfAGguf, IsDescribedAsItsTemplateWroteIt) {
  const SmallGguf model("{{ bos_token }}[hi]{{ messages[0].content }}");
  api::Request request;
  request.prompt = api::ChatPrompt{{{"user", " hi"}}};
  request.prompt_only = request.return_prompt_text = true;
  const auto events = DescribePrompt(model.context(), request);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(std::get<api::TextDelta>(events[1]).text, "<s>[hi] hi");
  // Sent as a text it has the tokens of the chat.
  EXPECT_EQ(TokensOf(model, api::RawPrompt{"<s>[hi] hi"}), TokensOf(model, request.prompt));
}

// A directory whose tokenizer_config.json leaves tokens to special_tokens_map.json.
TEST(ChatOfADirectory, TemplatesSeeEverySpecialToken) {
  namespace fs = std::filesystem;
  std::string name = fs::temp_directory_path() / "quire-template-tokens-XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::copy(fs::path("tests/data/models/lfm2") / file, folder);
  }
  std::ofstream(folder / "tokenizer_config.json") << R"({"bos_token":"<|startoftext|>","eos_token":null})";
  std::ofstream(folder / "special_tokens_map.json")
      << R"({"eos_token":{"content":"<|im_end|>"},"pad_token":"<|pad|>","unk_token":"<u>"})";
  std::ofstream(folder / "chat_template.jinja")
      << "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token }}{{ sep_token }}";
  const auto model = Load(folder, [](float, std::string_view) {});
  fs::remove_all(folder);
  ASSERT_TRUE(model) << model.error().message;
  const auto rendered = model->prompt_template->Render(std::vector<api::Message>{{"user", "hi"}}, {});
  std::string text;
  for (const auto& segment : *rendered) text += segment.text;
  EXPECT_EQ(text, "<|startoftext|><|im_end|><|pad|><u>");
}

}  // namespace
}  // namespace quire::runner::engine
