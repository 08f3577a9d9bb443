#include "runner/engine/sentence_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire::runner::engine {
namespace {

using testing::HasSubstr;

constexpr const char* kTwoPrompts =
    R"({"prompts":{"query":"search_query: ","Document":"title: none | text: ","Clustering":""}})";

TEST(SentencePrompts, AreFoundByTheNamesOfOtherDialects) {
  const SentencePrompts prompts(kTwoPrompts);
  for (const char* name : {"query", "search_query", "QUERY"}) {
    EXPECT_EQ(prompts.Find(name, true).value_or("?"), "search_query: ") << name;
  }
  for (const char* name : {"document", "passage", "search_document"}) {
    EXPECT_EQ(prompts.Find(name, true).value_or("?"), "title: none | text: ") << name;
  }
  EXPECT_EQ(prompts.Find("clustering", true).value_or("?"), "");
}

TEST(SentencePrompts, WhatIsNotDefinedIsRefusedByNameOrHasNoPrefix) {
  const SentencePrompts prompts(kTwoPrompts), none("");
  EXPECT_THAT(prompts.Find("classification", true).error().message,
              HasSubstr("no prefix \"classification\"; they define clustering, document, query"));
  EXPECT_EQ(prompts.Find("classification", true).error().field, "input_type");
  EXPECT_EQ(prompts.Find("classification", false).value_or("?"), "");
  EXPECT_FALSE(none.Find("query", true));
  EXPECT_FALSE(none.Find("document", true));
  EXPECT_EQ(none.Find("query", false).value_or("?"), "");
}

TEST(SentencePrompts, DocumentsAreWithoutAPrefixWhereOnlyQueriesHaveOne) {
  const SentencePrompts prompts(R"({"prompts":{"query":"Represent this: "},"default_prompt_name":"query"})");
  EXPECT_EQ(prompts.Find("search_document", true).value_or("?"), "");
  EXPECT_FALSE(prompts.Find("clustering", true));
}

TEST(SentencePrompts, AnInvalidFileFailsTheRequestsThatNameOne) {
  for (const char* text : {"[", "[]", R"({"prompts":[]})", R"({"prompts":{"query":1}})"}) {
    const auto found = SentencePrompts(text).Find("query", false);
    ASSERT_FALSE(found) << text;
    EXPECT_EQ(found.error().code, api::ErrorCode::kBadModel);
    EXPECT_THAT(found.error().message, HasSubstr("config_sentence_transformers.json"));
  }
}

}  // namespace
}  // namespace quire::runner::engine
