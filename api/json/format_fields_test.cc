#include "api/json/format_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/json/read.h"

namespace quire::api {
namespace {

using Kind = OutputFormat::Kind;

template <class Get>
std::optional<OutputFormat> Read(std::string_view text, Get get) {
  const auto body = ReadJson(text);
  EXPECT_TRUE(body.has_value());
  FirstError error;
  Fields fields(*body, "", error);
  auto format = get(fields);
  EXPECT_FALSE(error) << error->message;
  return format;
}

TEST(FormatFields, OllamaFormat) {
  EXPECT_FALSE(Read(R"({"format":""})", GetFormat));
  EXPECT_FALSE(Read(R"({"format":null})", GetFormat));
  EXPECT_EQ(Read(R"({"format":"json"})", GetFormat)->kind, Kind::kJson);
  const auto schema = Read(R"({"format":{"type":"object","b":1,"a":2}})", GetFormat);
  EXPECT_EQ(schema->kind, Kind::kSchema);
  EXPECT_EQ(schema->text, R"({"type":"object","b":1,"a":2})");
  EXPECT_EQ(schema->field, "format");
}

TEST(FormatFields, TypedFormat) {
  EXPECT_FALSE(Read(R"({})", GetTypedFormat));
  EXPECT_FALSE(Read(R"({"format":{"type":"text"}})", GetTypedFormat));
  EXPECT_EQ(Read(R"({"format":{"type":"json_object"}})", GetTypedFormat)->kind, Kind::kJsonObject);
  const auto schema =
      Read(R"({"format":{"type":"json_schema","name":"n","schema":{"type":"null"}}})", GetTypedFormat);
  EXPECT_EQ(schema->kind, Kind::kSchema);
  EXPECT_EQ(schema->text, R"({"type":"null"})");
  EXPECT_EQ(schema->field, "format.schema");
}

TEST(FormatFields, ResponseFormatAndItsKin) {
  EXPECT_FALSE(Read(R"({"response_format":{"type":"text"}})", GetResponseFormat));
  EXPECT_EQ(Read(R"({"response_format":{"type":"json_object"}})", GetResponseFormat)->kind,
            Kind::kJsonObject);
  const auto schema = Read(
      R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"null"}}}})",
      GetResponseFormat);
  EXPECT_EQ(schema->kind, Kind::kSchema);
  EXPECT_EQ(schema->text, R"({"type":"null"})");
  EXPECT_EQ(schema->field, "response_format.json_schema.schema");
  EXPECT_EQ(Read(R"({"guided_regex":"a+"})", GetResponseFormat)->text, "a+");
  EXPECT_EQ(Read(R"({"guided_choice":["a","b"]})", GetResponseFormat)->text, R"(["a","b"])");
  const auto choice = Read(R"({"structured_outputs":{"choice":["a"]}})", GetResponseFormat);
  EXPECT_EQ(choice->kind, Kind::kChoice);
  EXPECT_EQ(choice->field, "structured_outputs.choice");
}

}  // namespace
}  // namespace quire::api
