#include "api/ollama/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::api::ollama {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Error CreateError(std::string_view body) {
  const auto parsed = ParseCreate(body);
  EXPECT_FALSE(parsed) << body;
  return parsed ? Error{} : parsed.error();
}

TEST(OllamaStore, CopyNeedsBothNames) {
  const auto copy = ParseCopy(R"({"source":"a","destination":"b"})");
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->source, "a");
  EXPECT_EQ(copy->destination, "b");
  EXPECT_EQ(ParseCopy(R"({"destination":"b"})").error().message, "source is required");
  EXPECT_EQ(ParseCopy(R"({"source":"a"})").error().field, "destination");
  EXPECT_EQ(ParseDelete(R"({"name":"old"})"), "old");
  EXPECT_EQ(ParseDelete("{}").error().message, "model is required");
}

TEST(OllamaStore, CreateReadsEveryField) {
  const auto create = ParseCreate(R"({"model":"m","from":"base","system":"s","template":"t",
      "parameters":{"temperature":0.25,"stop":["A","B"]},"license":["one","","two"],"quantize":"q4_k_m",
      "messages":[{"role":"User","content":"hey"}],"files":{"dir/x.gguf":"sha256:00"},"stream":false})");
  ASSERT_TRUE(create) << create.error().message;
  EXPECT_EQ(create->from, "base");
  EXPECT_EQ(create->system, "s");
  EXPECT_EQ(create->go_template, "t");
  EXPECT_EQ(create->parameters_json, R"({"temperature":0.25,"stop":["A","B"]})");
  EXPECT_THAT(create->licenses, ElementsAre("one", "two"));
  EXPECT_EQ(create->quantize, "Q4_K_M");
  ASSERT_EQ(create->messages.size(), 1u);
  EXPECT_EQ(create->messages[0].role, "user");
  ASSERT_EQ(create->files.size(), 1u);
  EXPECT_EQ(create->files[0].path, "dir/x.gguf");
  EXPECT_EQ(create->files[0].digest, "sha256:00");
  EXPECT_FALSE(create->stream);
  EXPECT_THAT(ParseCreate(R"({"name":"m","from":"b","license":"one"})")->licenses, ElementsAre("one"));
}

TEST(OllamaStore, CreateSaysWhatIsWrong) {
  EXPECT_EQ(CreateError(R"({"model":"m"})").message, "neither 'from' or 'files' was specified");
  EXPECT_EQ(CreateError(R"({"from":"m"})").message, "model is required");
  for (const char* path : {"/etc/x", "../x", "a/../x", "", "a//b", "./a", "a/"}) {
    const Error error = CreateError(std::string(R"({"model":"m","files":{")") + path + R"(":"sha256:0"}})");
    EXPECT_EQ(error.field, "files") << path;
  }
  EXPECT_THAT(CreateError(R"({"model":"m","files":{"a":""}})").message, HasSubstr("digest of \"a\""));
  EXPECT_EQ(CreateError(R"({"model":"m","from":"b","parameters":{"temperature":"hot"}})").field,
            "options.temperature");
  EXPECT_THAT(CreateError(R"({"model":"m","from":"b","parameters":{"tempreature":1}})").message,
              HasSubstr("\"tempreature\""));
  EXPECT_EQ(CreateError(R"({"model":"m","from":"b","license":3})").field, "license");
  EXPECT_EQ(CreateError(R"({"model":"m","from":"b","adapters":{"a":"sha256:0"}})").code,
            ErrorCode::kUnsupported);
}

TEST(OllamaStore, StatusBodies) {
  EXPECT_EQ(StatusBody("success"), R"({"status":"success"})");
  EXPECT_EQ(StatusBody("pulling", "sha256:0", 9, 3),
            R"({"status":"pulling","digest":"sha256:0","total":9,"completed":3})");
}

TEST(Create, TypesAndVersionsAreChecked) {
  const auto with = [](std::string_view fields) {
    return ParseCreate(R"({"model":"m","from":"b",)" + std::string(fields) + "}");
  };
  EXPECT_EQ(with(R"("quantize":"q4_K")")->quantize, "Q4_K_M");
  EXPECT_EQ(with(R"("quantization":"q8_0")")->quantize, "Q8_0");
  EXPECT_EQ(with(R"("requires":"v0.14.0-rc1")")->requires_version, "v0.14.0-rc1");
  for (const char* version : {"0.14", "x", "1.2.3.4", "1..2", "1.2.", ".1.2"}) {
    const auto parsed = with(R"("requires":")" + std::string(version) + "\"");
    ASSERT_FALSE(parsed) << version;
    EXPECT_EQ(parsed.error().field, "requires");
  }
  EXPECT_EQ(with(R"("draft_files":{"d.gguf":"sha256:0"},"draft_quantize":"q8_0")")->draft_files.at(0).path,
            "d.gguf");
  EXPECT_EQ(with(R"("draft_quantize":"q8_0")").error().field, "draft_quantize");
  EXPECT_EQ(with(R"("draft_files":{"../d":"sha256:0"})").error().field, "draft_files");
}

}  // namespace
}  // namespace quire::api::ollama
