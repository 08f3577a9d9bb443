#include "runner/engine/prompt/sentence_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire::runner::engine {
namespace {

using testing::HasSubstr;

constexpr const char* kTwoPrompts =
    R"({"prompts":{"query":"search_query: ","Document":"title: none | text: ","Clustering":""}})";

TEST(SentenceSettings, AreFoundByTheNamesOfOtherDialects) {
  const SentenceSettings prompts(kTwoPrompts, "", 0);
  for (const char* name : {"query", "search_query", "QUERY"}) {
    EXPECT_EQ(prompts.Prefix(name, true).value_or("?"), "search_query: ") << name;
  }
  for (const char* name : {"document", "passage", "search_document"}) {
    EXPECT_EQ(prompts.Prefix(name, true).value_or("?"), "title: none | text: ") << name;
  }
  EXPECT_EQ(prompts.Prefix("clustering", true).value_or("?"), "");
}

TEST(SentenceSettings, WhatIsNotDefinedIsRefusedByNameOrHasNoPrefix) {
  const SentenceSettings prompts(kTwoPrompts, "", 0), none;
  EXPECT_THAT(prompts.Prefix("classification", true).error().message,
              HasSubstr("no prefix \"classification\"; they define clustering, document, query"));
  EXPECT_EQ(prompts.Prefix("classification", true).error().field, "input_type");
  EXPECT_EQ(prompts.Prefix("classification", false).value_or("?"), "");
  EXPECT_EQ(none.Prefix("query", true).value(), "");
  EXPECT_EQ(none.Prefix("document", true).value(), "");
  EXPECT_EQ(none.Prefix("query", false).value_or("?"), "");
}

TEST(SentenceSettings, DocumentsAreWithoutAPrefixWhereOnlyQueriesHaveOne) {
  const SentenceSettings prompts(R"({"prompts":{"query":"Represent this: "},"default_prompt_name":"query"})",
                                 "", 0);
  EXPECT_EQ(prompts.Prefix("search_document", true).value_or("?"), "");
  EXPECT_FALSE(prompts.Prefix("clustering", true));
}

TEST(SentenceSettings, TheDefaultPrefixIsOfTextsThatNameNone) {
  const SentenceSettings prompts(
      R"({"prompts":{"query":"Represent this: ","passage":null},"default_prompt_name":"query"})", "", 0);
  EXPECT_EQ(prompts.Prefix("", false).value_or("?"), "Represent this: ");
  EXPECT_EQ(prompts.Prefix("passage", true).value_or("?"), "");
  EXPECT_EQ(prompts.Prefix("none", true).value_or("?"), "");
  const SentenceSettings without(kTwoPrompts, "", 0);
  EXPECT_EQ(without.Prefix("", false).value_or("?"), "");
  const SentenceSettings defined(R"({"prompts":{"none":"a"},"default_prompt_name":null})", "", 0);
  EXPECT_EQ(defined.Prefix("none", true).value_or("?"), "a");
}

TEST(SentenceSettings, TextsAreLowercasedWhereTheFileSaysSo) {
  const SentenceSettings lower("", R"({"max_seq_length":null,"do_lower_case":true})", 0);
  const SentenceSettings plain("", R"({"do_lower_case":false})", 0);
  EXPECT_EQ(lower.Normalize("HELLO \u00c4\u0130 \u00e9\u4e2d\x01"), "hello \u00e4i\u0307 \u00e9\u4e2d\x01");
  EXPECT_EQ(plain.Normalize("HELLO"), "HELLO");
}

// As sentence-transformers: its own length, else the tokenizer's; the model's positions limit both.
TEST(SentenceSettings, LengthIsTheFilesElseTheTokenizers) {
  EXPECT_EQ(SentenceSettings("", "", 0).TokensMax(512), 512);
  EXPECT_EQ(SentenceSettings("", "", 128).TokensMax(512), 128);
  EXPECT_EQ(SentenceSettings("", "", 1024).TokensMax(512), 512);
  EXPECT_EQ(SentenceSettings("", R"({"max_seq_length":256})", 128).TokensMax(512), 256);
  EXPECT_EQ(SentenceSettings("", R"({"max_seq_length":null})", 128).TokensMax(512), 128);
  EXPECT_EQ(SentenceSettings("", R"({"max_seq_length":1e30})", 128).TokensMax(512), 512);
}

TEST(SentenceSettings, AnInvalidFileFailsEveryRequest) {
  for (const char* text :
       {"[", "[]", R"({"prompts":[]})", R"({"prompts":{"query":1}})",
        R"({"prompts":{"query":""},"default_prompt_name":"passage"})", R"({"default_prompt_name":1})"}) {
    for (const char* name : {"", "query"}) {
      const auto found = SentenceSettings(text, "", 0).Prefix(name, false);
      ASSERT_FALSE(found) << text;
      EXPECT_EQ(found.error().code, api::ErrorCode::kBadModel);
      EXPECT_THAT(found.error().message, HasSubstr("config_sentence_transformers.json"));
    }
  }
  for (const char* text :
       {"[", "[]", R"({"do_lower_case":1})", R"({"max_seq_length":"256"})", R"({"max_seq_length":2})"}) {
    const auto usable = SentenceSettings("", text, 0).Check();
    ASSERT_FALSE(usable) << text;
    EXPECT_THAT(usable.error().message, HasSubstr("sentence_bert_config.json"));
  }
}

}  // namespace
}  // namespace quire::runner::engine
