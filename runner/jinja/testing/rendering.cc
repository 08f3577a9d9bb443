#include "runner/jinja/testing/rendering.h"

#include "runner/jinja/json_reader.h"
#include "runner/jinja/text.h"

namespace quire::runner::jinja {
namespace {

constexpr std::string_view kVariables = R"json({
  "xs": [3, 1, 2],
  "s": "Hello World",
  "d": {"b": 1, "a": "x", "items": [1]},
  "n": null,
  "u": "Zürich 👍",
  "ms": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}, {"role": "user", "content": "b"}],
  "f": 1.5,
  "i": 7,
  "t": true,
  "nest": {"a": {"b": [1, {"c": "deep"}]}},
  "ws": "  a b\n c\t",
  "lines": "a\n b\n\nc",
  "names": ["bob", "Al", "carl"]
})json";

std::string InPrint(std::string_view expression) { return "{{ " + std::string(expression) + " }}"; }

void CheckRendering(std::string_view source, std::string_view expected) {
  EXPECT_EQ(RenderOrError(source), expected) << source;
}

void CheckFailure(std::string_view source, std::string_view message) {
  const auto parsed = Template::Parse(source);
  api::Error error;
  if (!parsed) {
    error = parsed.error();
    EXPECT_EQ(error.code, api::ErrorCode::kBadModel) << source;
  } else {
    const auto rendered = parsed->Render(TestVariables(), TestOptions());
    ASSERT_FALSE(rendered.has_value()) << source << " rendered " << *rendered;
    error = rendered.error();
    EXPECT_EQ(error.code, api::ErrorCode::kInvalidArgument) << source;
  }
  const size_t mark = error.message.find("line 1: ");
  const std::string shown = mark == std::string::npos ? error.message : error.message.substr(mark + 8);
  EXPECT_EQ(shown, message) << source;
}

}  // namespace

Value TestVariables() { return JsonReader(Trust::kRequest).Read(kVariables).value(); }

RenderOptions TestOptions() {
  RenderOptions options;
  options.now.tm_year = 2026 - 1900;
  options.now.tm_mday = 15;
  options.now.tm_hour = 12;
  options.now.tm_min = 34;
  options.now.tm_sec = 56;
  options.now.tm_wday = 4;
  options.now.tm_yday = 14;
  return options;
}

std::string RenderOrError(std::string_view source) {
  const auto parsed = Template::Parse(source);
  if (!parsed) return "error: " + parsed.error().message;
  const auto rendered = parsed->Render(TestVariables(), TestOptions());
  return rendered ? *rendered : "error: " + rendered.error().message;
}

void CheckTemplates(std::span<const Rendering> table) {
  for (const Rendering& row : table) CheckRendering(row.source, row.expected);
}

void CheckExpressions(std::span<const Rendering> table) {
  for (const Rendering& row : table) CheckRendering(InPrint(row.source), row.expected);
}

void CheckFailingTemplates(std::span<const Rendering> table) {
  for (const Rendering& row : table) CheckFailure(row.source, row.expected);
}

void CheckFailingExpressions(std::span<const Rendering> table) {
  for (const Rendering& row : table) CheckFailure(InPrint(row.source), row.expected);
}

}  // namespace quire::runner::jinja
