// Every numeric request field of every dialect against hostile values: the documented meaning, or an error
// naming the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "api/anthropic/messages.h"
#include "api/ollama/chat.h"
#include "api/openai/chat.h"

namespace quire::api {
namespace {

struct Field {
  std::string name;
  bool integer;
  double min, max;
};

struct Value {
  std::string json;
  std::optional<double> number;  // absent = not a number at all
};

const double kAny = -std::numeric_limits<double>::infinity();
const double kInt32Max = 2147483647.0;
const double kInt64Max = 9223372036854774784.0;  // the largest double below 2^63
const double kFloatMax = 3.5e38;

std::vector<Value> Values() {
  return {{"-1", -1},
          {"0", 0},
          {"1", 1},
          {"20", 20},
          {"21", 21},
          {"1.5", 1.5},
          {"-2147483648", -2147483648.0},
          {"2147483648", 2147483648.0},
          {"9223372036854775808", 9223372036854775808.0},
          {"18446744073709551616", 18446744073709551616.0},
          {"1e308", 1e308},
          {"-1e308", -1e308},
          {"\"1\"", {}},
          {"\"NaN\"", {}},
          {"true", {}},
          {"[]", {}},
          {"[1]", {}},
          {"{}", {}}};
}

// The table of docs/api.md.
std::vector<Field> OptionFields() {
  return {{"num_ctx", true, 0, kInt32Max},
          {"num_predict", true, -2147483648.0, kInt32Max},
          {"num_keep", true, -1, kInt32Max},
          {"top_k", true, -2147483648.0, kInt32Max},
          {"repeat_last_n", true, -1, kInt32Max},
          {"seed", true, kAny, kInt64Max},
          {"temperature", false, -kFloatMax, kFloatMax},
          {"top_p", false, 0, kFloatMax},
          {"min_p", false, 0, 1},
          {"typical_p", false, 0, kFloatMax},
          {"repeat_penalty", false, 0, kFloatMax},
          {"presence_penalty", false, -kFloatMax, kFloatMax},
          {"frequency_penalty", false, -kFloatMax, kFloatMax},
          {"num_batch", true, -2147483648.0, kInt32Max},
          {"num_thread", true, -2147483648.0, kInt32Max},
          {"num_gpu", true, -2147483648.0, kInt32Max},
          {"draft_num_predict", true, -2147483648.0, kInt32Max},
          {"mirostat_tau", false, 0, kFloatMax},
          {"dry_allowed_length", true, 0, kInt32Max},
          {"xtc_probability", false, 0, 1}};
}

bool Accepts(const Field& field, const Value& value) {
  if (!value.number) return false;
  if (field.integer && std::trunc(*value.number) != *value.number) return false;
  // 64-bit bounds: -1e308 is below any int64_t whatever the field's own least value.
  if (field.integer && (*value.number < -9223372036854775808.0 || *value.number > kInt64Max)) return false;
  return *value.number >= field.min && *value.number <= field.max;
}

using ParseBody = std::function<std::optional<Error>(const std::string& json)>;

void Check(const std::vector<Field>& fields, const std::string& path, const ParseBody& parse) {
  for (const Field& field : fields) {
    for (const Value& value : Values()) {
      // Its texts may be numbers, too.
      if (field.name == "keep_alive" && value.json.starts_with('"')) continue;
      const auto error = parse("\"" + field.name + "\":" + value.json);
      const std::string what = field.name + " = " + value.json;
      if (Accepts(field, value)) {
        EXPECT_FALSE(error) << what << ": " << error->message;
        continue;
      }
      ASSERT_TRUE(error) << what;
      EXPECT_EQ(HttpStatus(error->code), 400) << what;
      EXPECT_THAT(error->message, testing::HasSubstr(field.name + "\"")) << what;
      EXPECT_EQ(error->field, path + field.name) << what;
    }
    EXPECT_FALSE(parse("\"" + field.name + "\":null")) << field.name;
    for (const std::string token : {"NaN", "Infinity", "-", "1e400", "0x1", "01"}) {
      const auto error = parse("\"" + field.name + "\":" + token);
      ASSERT_TRUE(error) << field.name << " = " << token;
      EXPECT_EQ(HttpStatus(error->code), 400);
    }
  }
}

template <class Parsed>
std::optional<Error> ParseErrorOf(const Result<Parsed>& parsed) {
  if (parsed) return std::nullopt;
  return parsed.error();
}

TEST(Numbers, OllamaOptions) {
  Check(OptionFields(), "options.", [](const std::string& json) {
    return ParseErrorOf(ollama::ParseGenerate(R"({"model":"m","prompt":"p","options":{)" + json + "}}"));
  });
  Check(OptionFields(), "options.", [](const std::string& json) {
    return ParseErrorOf(ollama::ParseChat(R"({"model":"m","messages":[],"options":{)" + json + "}}"));
  });
}

TEST(Numbers, OllamaFields) {
  // A negative keep_alive is "forever", however large.
  const std::vector<Field> fields = {{"top_logprobs", true, 0, 20}, {"keep_alive", false, kAny, 9.2e9}};
  for (const Field& field : fields) {
    Check({field}, "", [](const std::string& json) {
      return ParseErrorOf(ollama::ParseGenerate(R"({"model":"m",)" + json + "}"));
    });
  }
}

TEST(Numbers, OpenAiFields) {
  const std::vector<Field> fields = {{"temperature", false, -kFloatMax, kFloatMax},
                                     {"top_p", false, 0, kFloatMax},
                                     {"presence_penalty", false, -kFloatMax, kFloatMax},
                                     {"frequency_penalty", false, -kFloatMax, kFloatMax},
                                     {"top_k", true, -2147483648.0, kInt32Max},
                                     {"min_p", false, 0, 1},
                                     {"repeat_penalty", false, 0, kFloatMax},
                                     {"seed", true, kAny, kInt64Max},
                                     {"max_tokens", true, -1, kInt32Max},
                                     {"max_completion_tokens", true, -1, kInt32Max},
                                     {"top_logprobs", true, 0, 20},
                                     {"n", true, 1, 128},
                                     {"keep_alive", false, kAny, 9.2e9}};
  for (const Field& field : fields) {
    Check({field}, "", [](const std::string& json) {
      return ParseErrorOf(openai::ParseChat(
          R"({"model":"m","logprobs":true,"messages":[{"role":"user","content":"x"}],)" + json + "}"));
    });
  }
  Check(OptionFields(), "options.", [](const std::string& json) {
    return ParseErrorOf(openai::ParseChat(
        R"({"model":"m","messages":[{"role":"user","content":"x"}],"options":{)" + json + "}}"));
  });
}

TEST(Numbers, AnthropicFields) {
  const std::string body = R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],)";
  const auto parse = [&body](const std::string& json) {
    return ParseErrorOf(anthropic::ParseMessages(body + json + "}"));
  };
  Check({{"temperature", false, -kFloatMax, kFloatMax},
         {"top_p", false, 0, kFloatMax},
         {"top_k", true, -2147483648.0, kInt32Max},
         {"keep_alive", false, kAny, 9.2e9}},
        "", parse);
  Check({{"budget_tokens", true, 0, kInt32Max}}, "thinking.",
        [&](const std::string& json) { return parse(R"("thinking":{"type":"enabled",)" + json + "}"); });
  for (const Value& value : Values()) {
    const auto error = ParseErrorOf(anthropic::ParseMessages(
        R"({"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":)" + value.json + "}"));
    EXPECT_EQ(!error, Accepts({"max_tokens", true, 1, kInt32Max}, value)) << value.json;
    if (error) {
      EXPECT_EQ(error->field, "max_tokens") << value.json;
    }
  }
}

}  // namespace
}  // namespace quire::api
