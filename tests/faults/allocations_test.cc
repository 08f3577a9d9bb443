// What a request runs before its boundary catches std::bad_alloc: nothing is lost, and what requests share
// goes on. For each of its allocations.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/anthropic/messages.h"
#include "api/json/read.h"
#include "api/ollama/chat.h"
#include "api/openai/chat.h"
#include "api/openai/responses.h"
#include "runner/constraint/output_format.h"
#include "tests/faults/every_allocation.h"

namespace quire::faults {
namespace {

constexpr std::string_view kOllamaChat =
    R"({"model":"demo","options":{"temperature":0,"stop":["a string that is not short","b"]},"format":{"type":"object"},)"
    R"("messages":[{"role":"system","content":"You answer with few words, and never lie."},)"
    R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"city":"Paris","days":[1,2]}}}]},)"
    R"({"role":"tool","content":"sunny, as it was the day before","tool_name":"f"},{"role":"user","content":"Hello!"}],)"
    R"("tools":[{"type":"function","function":{"name":"f","description":"the weather of a city",)"
    R"("parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]})";
constexpr std::string_view kOpenAiChat =
    R"({"model":"demo","max_tokens":8,"n":2,"stop":"a string that is not short","response_format":{"type":"json_schema",)"
    R"("json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"type":"integer"}}}}},)"
    R"("messages":[{"role":"user","content":[{"type":"text","text":"Hello, is anybody there?"}]}],)"
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto"})";
// Without tools: their definitions are built with initializer lists, where the JSON library loses one
// allocation when another fails.
constexpr std::string_view kAnthropic =
    R"({"model":"demo","max_tokens":8,"system":[{"type":"text","text":"You answer with few words."}],)"
    R"("messages":[{"role":"user","content":[{"type":"text","text":"Hello!","cache_control":{"type":"ephemeral"}}]}]})";
constexpr std::string_view kResponses =
    R"({"model":"demo","input":[{"role":"user","content":"Hello, is anybody there?"}],"max_output_tokens":8})";

// Tests one parser. Values within values are destroyed while there is no memory, too.
template <class Parse>
void FailEveryAllocationOf(std::string_view name, Parse parse) {
  bool parsed = false;
  const int64_t points = FailEveryAllocation([&] { parsed = parse(); }, [] {});
  EXPECT_TRUE(parsed) << name;
  EXPECT_GT(points, 0) << name;
  ::testing::Test::RecordProperty(std::string(name), static_cast<int>(points));
}

TEST(FailingAllocations, RequestBodies) {
  FailEveryAllocationOf("json", [] { return api::ReadJson(kOllamaChat).has_value(); });
  FailEveryAllocationOf("ollama", [] { return api::ollama::ParseChat(kOllamaChat).has_value(); });
  FailEveryAllocationOf("openai", [] { return api::openai::ParseChat(kOpenAiChat).has_value(); });
  FailEveryAllocationOf("anthropic", [] { return api::anthropic::ParseMessages(kAnthropic).has_value(); });
  FailEveryAllocationOf("responses", [] { return api::openai::ParseResponses(kResponses).has_value(); });
}

// What exceeds the memory of a preparation (runner/work/work_memory.h) is destroyed within that bound.
TEST(FailingAllocations, DestroyingJsonAllocatesNothing) {
  const int64_t failed = Faults().allocations_failed;
  {
    const auto value =
        api::ReadJson(std::string(1500, '[') + "{\"a\":[1,{\"b\":\"c\"}]}" + std::string(1500, ']'));
    ASSERT_TRUE(value);
    Faults().allocation_countdown = 1;
  }
  Faults().allocation_countdown = 0;
  EXPECT_EQ(Faults().allocations_failed, failed);
}

// The cache of compiled formats goes on as if nothing had happened.
TEST(FailingAllocations, Formats) {
  using runner::constraint::ConstraintCache;
  using runner::constraint::VocabularyIndex;
  const auto vocabulary = [] {
    return std::make_shared<const VocabularyIndex>(
        3, [](api::TokenId id) { return std::string_view(id == 1   ? "{"
                                                         : id == 2 ? "}"
                                                                   : ""); },
        [](api::TokenId id) { return id == 0; }, std::unordered_set<api::TokenId>{0});
  };
  const api::OutputFormat format{
      api::OutputFormat::Kind::kSchema,
      R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-c]{2,5}$"},"b":{"enum":[1,2,"x"]}}})",
      "format"};
  ConstraintCache kept(vocabulary, 8 << 20);
  bool compiled = false;
  const auto compile = [&](ConstraintCache& cache) {
    const auto constraint = cache.Get(format);
    compiled = constraint.has_value();
    if (!compiled) return;
    runner::constraint::Matcher matcher(*constraint);
    compiled = matcher.Mask().Has(1) && matcher.Accept(1);
  };
  const int64_t points = FailEveryAllocation(
      [&] {
        ConstraintCache cache(vocabulary, 8 << 20);
        compile(cache);
      },
      [&] { compile(kept); });
  EXPECT_TRUE(compiled);
  EXPECT_EQ(kept.size(), 1U);
  EXPECT_GT(points, 100);
  RecordProperty("points", static_cast<int>(points));
}

}  // namespace
}  // namespace quire::faults
