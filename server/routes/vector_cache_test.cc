#include "server/routes/vector_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace quire::server {
namespace {

api::Request RequestOf(api::EmbedPrompt prompt) {
  api::Request request;
  request.prompt = std::move(prompt);
  return request;
}

std::string KeyFor(std::string_view digest, const api::Request& request,
                   const api::EmbedRequest::Shared& shared = {}) {
  return VectorKeys(digest, request, shared).KeyOf(std::get<api::EmbedPrompt>(request.prompt));
}

TEST(VectorCache, WhateverChangesTheVectorChangesTheKey) {
  std::vector<api::Request> requests = {
      RequestOf({.text = "a"}),
      RequestOf({.text = "b"}),
      RequestOf({.text = "a", .dimensions = 3}),
      RequestOf({.text = "a", .normalize = false}),
      RequestOf({.text = "a", .rank = true, .document = "b"}),
      RequestOf({.text = "a", .rank = true, .document = "c"}),
      RequestOf({.text = "a", .rank = true, .document = "b", .instruction = "i"}),
      RequestOf({.text = "a", .rank = true, .document = "b", .document_tokens_max = 1}),
      RequestOf({.text = "a", .keep_end = true}),
      RequestOf({.text = "a", .prompt_name = "query"}),
      RequestOf({.text = "a", .prompt_name = "query", .prompt_required = true}),
      RequestOf({.text = {}, .tokens = {1, 23}}),
      RequestOf({.text = {}, .tokens = {12, 3}}),
  };
  requests.push_back(requests.front());
  requests.back().client.tenant = "t";
  requests.push_back(requests.front());
  requests.back().client.cache_salt = "s";
  requests.push_back(requests.front());
  requests.back().overflow = api::Overflow::kRefuse;
  requests.push_back(requests.front());
  requests.back().params.num_ctx = 8;
  std::set<std::string> keys;
  for (const api::Request& request : requests) keys.insert(KeyFor("digest", request));
  keys.insert(KeyFor("another", requests.front()));
  keys.insert(KeyFor("digest", requests.front(), {"q", "", ""}));
  keys.insert(KeyFor("digest", requests.front(), {"", "q", ""}));
  keys.insert(KeyFor("digest", requests.front(), {"", "", "q"}));
  EXPECT_EQ(keys.size(), requests.size() + 4);
  EXPECT_EQ(KeyFor("digest", requests.front()), KeyFor("digest", requests.front()));
  EXPECT_EQ(KeyFor("", requests.front()), "") << "a model without a digest";
}

TEST(VectorCache, KeepsTheNewestWithinItsBytes) {
  VectorCache cache(1000);
  EXPECT_FALSE(cache.Find("a"));
  for (const char* key : {"a", "b", "c"}) cache.Store(key, {std::vector<float>(32, 1), 7});
  ASSERT_TRUE(cache.Find("a"));
  EXPECT_EQ(cache.Find("a")->prompt_tokens, 7);
  cache.Store("d", {std::vector<float>(32, 1), 7});
  EXPECT_FALSE(cache.Find("b")) << "the one not used for longest";
  EXPECT_TRUE(cache.Find("a"));
  EXPECT_TRUE(cache.Find("d"));
  cache.Store("large", {std::vector<float>(1000, 1), 7});
  EXPECT_FALSE(cache.Find("large"));
  EXPECT_LE(cache.stats().bytes, 1000U);
  EXPECT_EQ(cache.stats().hits, 4U);
  EXPECT_EQ(cache.stats().misses, 3U);
}

}  // namespace
}  // namespace quire::server
