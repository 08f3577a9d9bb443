// The memory that compiling a format of at most 1 MiB takes. Linked with counted_memory.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "runner/constraint/output_format.h"
#include "runner/constraint/testing/byte_matching.h"
#include "runner/work/work_memory.h"

namespace quire::runner::constraint {
namespace {

using testing::HasSubstr;
using Kind = api::OutputFormat::Kind;

constexpr size_t kMiB = size_t{1} << 20;

std::string Repeated(int count, std::string_view separator, auto text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += fmt::format("{}{}", i == 0 ? "" : separator, text(i));
  return all;
}
std::string Repeated(int count, std::string_view text) {
  return Repeated(count, ",", [text](int) { return text; });
}

class CompileMemory : public testing::Test {
 protected:
  // The error's message, or nothing.
  std::string Compile(std::string text, Kind kind = Kind::kSchema) {
    const WorkMemory memory(size_t{4} << 30);
    const auto compiled = cache_.Get({kind, std::move(text), "format"});
    peak_ = memory.peak();
    return compiled ? "" : compiled.error().message;
  }
  std::string CompileGrammar(std::string text) { return Compile(std::move(text), Kind::kGrammar); }

  const TestVocabulary vocabulary_;
  ConstraintCache cache_{[this] { return vocabulary_.Index(); }, 64 * kMiB};
  size_t peak_ = 0;
};

// Each of 500 combinations had the values: 16 MB each.
TEST_F(CompileMemory, CombinationsShareValues) {
  const std::string value = "[" + Repeated(500'000, "0") + "]";
  const std::string combinations = Repeated(500, R"({"type":"array"})");
  for (const std::string& values : {R"({"const":)" + value, R"({"enum":[)" + value + "]"}) {
    EXPECT_THAT(Compile(values + R"(,"anyOf":[)" + combinations + "]}"),
                HasSubstr("the format is too large: compiling it takes more than 128 MiB"));
    EXPECT_LT(peak_, ConstraintCache::kCompileBytesMax + 8 * kMiB);
  }
}

TEST_F(CompileMemory, CombinationsShareNames) {
  const std::string names = Repeated(60'000, ",", [](int i) { return fmt::format(R"("{}")", i); });
  EXPECT_EQ(
      Compile(R"({"required":[)" + names + R"(],"anyOf":[)" + Repeated(500, R"({"type":"array"})") + "]}"),
      "");
  EXPECT_LT(peak_, 24 * kMiB);
}

TEST_F(CompileMemory, CombinationsSharePrefixesOfArrays) {
  const std::string prefix = Repeated(200'000, "{}");
  EXPECT_EQ(
      Compile(R"({"prefixItems":[)" + prefix + R"(],"anyOf":[)" + Repeated(500, R"({"type":"null"})") + "]}"),
      "");
  EXPECT_LT(peak_, 48 * kMiB);
}

TEST_F(CompileMemory, CombinationsShareAlternatives) {
  const std::string choices = Repeated(200'000, "{}");
  EXPECT_THAT(
      Compile(R"({"anyOf":[)" + choices + R"(],"oneOf":[)" + Repeated(500, R"({"type":"null"})") + "]}"),
      HasSubstr("more than 512 combinations"));
  EXPECT_LT(peak_, 48 * kMiB);
}

TEST_F(CompileMemory, CombinationsSharePatterns) {
  const std::string pattern(500'000, 'x');
  EXPECT_THAT(
      Compile(R"({"pattern":")" + pattern + R"(","anyOf":[)" + Repeated(500, R"({"type":"string"})") + "]}"),
      HasSubstr("16384 bytes"));
  EXPECT_LT(peak_, 8 * kMiB);
}

// Each of 150,000 paths had the name: 75 GB.
TEST_F(CompileMemory, PathsShareNames) {
  const std::string name(500'000, 'x');
  for (const std::string_view keyword : {"anyOf", "prefixItems"}) {
    const std::string error = Compile(
        fmt::format(R"({{"properties":{{"{}":{{"{}":[{}]}}}}}})", name, keyword, Repeated(150'000, "{}")));
    EXPECT_LT(peak_, 48 * kMiB) << keyword;
    EXPECT_THAT(error, testing::StartsWith("format: #/properties/xxx")) << keyword;
  }
}

TEST_F(CompileMemory, NoFormatTakesMoreThanItsBound) {
  const std::string patterns = Repeated(5'000, ",", [](int i) {
    return fmt::format(R"("p{}":{{"pattern":"[a-z]{{1,{}}}x"}})", i, i % 1000 + 1);
  });
  Compile(R"({"properties":{)" + patterns + "}}");
  EXPECT_LT(peak_, ConstraintCache::kCompileBytesMax + 8 * kMiB);
  const std::string rules = Repeated(5'000, ",", [](int i) {
    return fmt::format(R"({{"properties":{{"p{}":{{}}}},"additionalProperties":{{}}}})", i);
  });
  Compile(R"({"allOf":[)" + rules + "]}");
  EXPECT_LT(peak_, ConstraintCache::kCompileBytesMax + 8 * kMiB);
  CompileGrammar("root ::= (\"" + std::string(500'000, 'x') + "\"){1000}");
  EXPECT_LT(peak_, ConstraintCache::kCompileBytesMax + 8 * kMiB);
  CompileGrammar("root ::= " + Repeated(170'000, " ", [](int) { return "[^a]"; }));
  EXPECT_LT(peak_, ConstraintCache::kCompileBytesMax + 8 * kMiB);
}

TEST_F(CompileMemory, ARefusalIsRemembered) {
  const std::string grammar = "root ::= " + Repeated(170'000, " ", [](int) { return "[^a]"; });
  EXPECT_THAT(CompileGrammar(grammar), HasSubstr("takes more than 128 MiB"));
  EXPECT_EQ(cache_.size(), 1U);
  EXPECT_THAT(CompileGrammar(grammar), HasSubstr("takes more than 128 MiB"));
  EXPECT_EQ(cache_.size(), 1U);
  EXPECT_LT(peak_, 4 * kMiB);
}

// Nothing is remembered of a request that has too little memory for its format.
TEST_F(CompileMemory, TheMemoryOfARequestEndsItsCompilation) {
  const std::string schema = R"({"enum":[[)" + Repeated(100'000, "0") + "]]}";
  const auto compile_in = [&](size_t bytes) {
    const WorkMemory memory(bytes);
    return cache_.Get(SchemaFormat(schema));
  };
  EXPECT_THROW(compile_in(8 * kMiB), std::bad_alloc);
  EXPECT_EQ(cache_.size(), 0U);
  const auto compiled = compile_in(ConstraintCache::kCompileBytesMax);
  EXPECT_TRUE(compiled || compiled.error().code == api::ErrorCode::kUnsupported);
  EXPECT_EQ(cache_.size(), 1U);
}

}  // namespace
}  // namespace quire::runner::constraint
