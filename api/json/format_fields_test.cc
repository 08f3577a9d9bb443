#include "api/json/format_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/base/limits.h"
#include "api/json/read.h"

namespace quire::api {
namespace {

using Kind = OutputFormat::Kind;

template <class Get>
std::optional<OutputFormat> ReadFormat(std::string_view text, Get get) {
  const auto body = ReadJson(text);
  EXPECT_TRUE(body.has_value());
  FirstError error;
  Fields fields(*body, "", error);
  auto format = get(fields);
  EXPECT_FALSE(error) << error->message;
  return format;
}

TEST(FormatFields, TheSourceIsBounded) {
  const auto error_of = [](size_t bytes, const std::string& before, const std::string& after, auto get) {
    const auto body = ReadJson(before + std::string(bytes, 'x') + after);
    FirstError error;
    Fields fields(*body, "", error);
    get(fields);
    return error ? error->field : "";
  };
  for (const size_t more : {0U, 1U}) {
    const size_t bytes = kFormatBytesMax + more;
    const auto expected = [more](const char* field) { return more == 0 ? "" : field; };
    EXPECT_EQ(error_of(bytes, R"({"guided_regex":")", "\"}", GetResponseFormat), expected("guided_regex"));
    EXPECT_EQ(error_of(bytes - 8, R"({"format":{"x":")", "\"}}", GetFormat), expected("format"));
    EXPECT_EQ(error_of(bytes, R"({"format":{"type":"json_schema","schema":")", "\"}}", GetTypedFormat),
              expected("format.schema"));
  }
}

TEST(FormatFields, OllamaFormat) {
  EXPECT_FALSE(ReadFormat(R"({"format":""})", GetFormat));
  EXPECT_FALSE(ReadFormat(R"({"format":null})", GetFormat));
  EXPECT_EQ(ReadFormat(R"({"format":"json"})", GetFormat)->kind, Kind::kJsonObject);
  const auto schema = ReadFormat(R"({"format":{"type":"object","b":1,"a":2}})", GetFormat);
  EXPECT_EQ(schema->kind, Kind::kSchema);
  EXPECT_EQ(schema->text, R"({"type":"object","b":1,"a":2})");
  EXPECT_EQ(schema->field, "format");
}

TEST(FormatFields, TypedFormat) {
  EXPECT_FALSE(ReadFormat(R"({})", GetTypedFormat));
  EXPECT_FALSE(ReadFormat(R"({"format":{"type":"text"}})", GetTypedFormat));
  EXPECT_EQ(ReadFormat(R"({"format":{"type":"json_object"}})", GetTypedFormat)->kind, Kind::kJsonObject);
  const auto schema =
      ReadFormat(R"({"format":{"type":"json_schema","name":"n","schema":{"type":"null"}}})", GetTypedFormat);
  EXPECT_EQ(schema->kind, Kind::kSchema);
  EXPECT_EQ(schema->text, R"({"type":"null"})");
  EXPECT_EQ(schema->field, "format.schema");
}

TEST(FormatFields, ResponseFormatAndItsKin) {
  EXPECT_FALSE(ReadFormat(R"({"response_format":{"type":"text"}})", GetResponseFormat));
  EXPECT_EQ(ReadFormat(R"({"response_format":{"type":"json_object"}})", GetResponseFormat)->kind,
            Kind::kJsonObject);
  const auto schema = ReadFormat(
      R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"null"}}}})",
      GetResponseFormat);
  EXPECT_EQ(schema->kind, Kind::kSchema);
  EXPECT_EQ(schema->text, R"({"type":"null"})");
  EXPECT_EQ(schema->field, "response_format.json_schema.schema");
  EXPECT_EQ(ReadFormat(R"({"guided_regex":"a+"})", GetResponseFormat)->text, "a+");
  EXPECT_EQ(ReadFormat(R"({"guided_choice":["a","b"]})", GetResponseFormat)->text, R"(["a","b"])");
  const auto choice = ReadFormat(R"({"structured_outputs":{"choice":["a"]}})", GetResponseFormat);
  EXPECT_EQ(choice->kind, Kind::kChoice);
  EXPECT_EQ(choice->field, "structured_outputs.choice");
}

// Clients and servers have several forms for the same.
TEST(FormatFields, ASchemaIsReadInEveryForm) {
  const std::string schema = R"({"type":"object","properties":{"a":{"const":7}}})";
  for (const std::string form : {
           R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":@}})",
           R"("response_format":{"type":"json_schema","schema":@})",
           R"("response_format":{"type":"json_schema","json_schema":@})",
           R"("response_format":{"type":"json_object","schema":@})",
           R"("response_format":{"type":"json_object","json_schema":@})",
           R"("response_format":{"type":"json_object"},"json_schema":@)",
           R"("response_format":{"type":"json_object"},"json_schema":{"name":"n","schema":@})",
           R"("response_format":{"type":"json_object"},"guided_json":@)",
           R"("response_format":{"type":"json","value":@})",
           R"("response_format":@)",
           R"("format":@)",
           R"("format":{"type":"json_schema","schema":@})",
           R"("format":{"type":"json_schema","json_schema":{"schema":@}})",
       }) {
    std::string body = "{" + form + "}";
    body.replace(body.find('@'), 1, schema);
    const auto format = ReadFormat(body, GetResponseFormat);
    ASSERT_TRUE(format) << body;
    EXPECT_EQ(format->kind, Kind::kSchema) << body;
    EXPECT_EQ(format->text, schema) << body;
  }
  EXPECT_EQ(
      ReadFormat(R"({"response_format":{"type":"json_schema","schema":{"type":"null"}}})", GetResponseFormat)
          ->field,
      "response_format.schema");
  EXPECT_EQ(ReadFormat(R"({"response_format":{"type":"json_object"},"json_schema":{"schema":true}})",
                       GetResponseFormat)
                ->field,
            "json_schema.schema");
  const auto regex = ReadFormat(R"({"response_format":{"type":"regex","value":"a+"}})", GetResponseFormat);
  EXPECT_EQ(regex->kind, Kind::kRegex);
  const auto grammar =
      ReadFormat(R"({"response_format":{"type":"grammar","grammar":"root ::= [a]"}})", GetResponseFormat);
  EXPECT_EQ(grammar->kind, Kind::kGrammar);
  for (const std::string text : {R"({"response_format":"json_object"})", R"({"format":"json"})",
                                 R"({"format":{"type":"json_object"}})"})
    EXPECT_EQ(ReadFormat(text, GetResponseFormat)->kind, Kind::kJsonObject) << text;
}

TEST(FormatFields, WhatIsNoFormatNamesItsField) {
  const auto field_of = [](const std::string& text) {
    const auto body = ReadJson(text);
    FirstError error;
    Fields fields(*body, "", error);
    GetResponseFormat(fields);
    return error ? error->field : "";
  };
  EXPECT_EQ(field_of(R"({"response_format":{"type":"json_schema"}})"), "response_format.schema");
  EXPECT_EQ(field_of(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})"),
            "response_format.json_schema.schema");
  EXPECT_EQ(field_of(R"({"response_format":{"type":"xml"}})"), "response_format.type");
  EXPECT_EQ(field_of(R"({"response_format":5})"), "response_format");
  EXPECT_EQ(field_of(R"({"format":"xml"})"), "format");
  EXPECT_EQ(field_of(R"({"guided_json":{"type":"null"},"guided_regex":"x"})"), "guided_regex");
}

}  // namespace
}  // namespace quire::api
