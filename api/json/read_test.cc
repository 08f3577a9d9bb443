#include "api/json/read.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "api/base/utf8.h"

namespace quire::api {
namespace {

std::string RoundTrip(std::string_view text) {
  const auto value = ReadJson(text);
  return value ? DumpJson(*value) : "error: " + value.error().message;
}

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(ReadJson, KeepsTheOrderOfMembers) {
  EXPECT_EQ(RoundTrip(R"( {"b":1,"a":{"z":[],"y":null},"c":-2.5} )"),
            R"({"b":1,"a":{"z":[],"y":null},"c":-2.5})");
}

TEST(ReadJson, TheLastOfRepeatedKeysWins) {
  EXPECT_EQ(RoundTrip(R"({"a":1,"b":2,"a":{"x":3}})"), R"({"a":{"x":3},"b":2})");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i % 20) + "\":" + std::to_string(i) + ",";
  many.back() = '}';
  const auto value = ReadJson(many);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->size(), 20U);
  EXPECT_EQ(value->begin().key(), "k0");
  EXPECT_EQ(*value->begin(), 80);
}

// Objects of up to 40 members of few names, beside a reader that compares each with all before it.
TEST(ReadJson, RepeatedKeysKeepTheFirstPlaceAndTheLastValue) {
  std::minstd_rand random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::pair<std::string, int>> expected;
    std::string text;
    const auto members = static_cast<int>(random() % 41);
    for (int value = 0; value < members; ++value) {
      const std::string key(random() % 8, static_cast<char>('a' + random() % 3));
      text += (text.empty() ? "{\"" : ",\"") + key + "\":" + std::to_string(value);
      const auto found = std::ranges::find(expected, key, &std::pair<std::string, int>::first);
      if (found == expected.end()) {
        expected.emplace_back(key, value);
      } else {
        found->second = value;
      }
    }
    const auto json = ReadJson(text.empty() ? "{}" : text + "}");
    ASSERT_TRUE(json);
    std::vector<std::pair<std::string, int>> read;
    for (const auto& [key, value] : json->items()) read.emplace_back(key, value.get<int>());
    ASSERT_EQ(expected, read) << text;
  }
}

TEST(ReadJson, ReplacesBrokenUtf8AndLoneSurrogates) {
  EXPECT_EQ(RoundTrip("[\"a\xFF\"]"), "[\"a\xEF\xBF\xBD\"]");
  EXPECT_EQ(RoundTrip("[\"\xE2\x82\"]"), "[\"\xEF\xBF\xBD\xEF\xBF\xBD\"]");
  EXPECT_EQ(RoundTrip(R"(["\ud83d"])"), "[\"\xEF\xBF\xBD\"]");
  EXPECT_EQ(RoundTrip(R"(["\ude00x\ud83d\n"])"), "[\"\xEF\xBF\xBDx\xEF\xBF\xBD\\n\"]");
  EXPECT_EQ(RoundTrip(R"(["\ud83d\ude00", "\\ud83d", "\ud83d\u0041"])"),
            "[\"\xF0\x9F\x98\x80\",\"\\\\ud83d\",\"\xEF\xBF\xBD"
            "A\"]");
}

TEST(ReadJson, RefusesWhatIsNotJson) {
  for (const std::string_view text :
       {std::string_view(""), std::string_view("{"), std::string_view("{\"model\":"),
        std::string_view("[1,]"), std::string_view("{} x"), std::string_view("NaN"),
        std::string_view("[1e400]"), std::string_view("\"a"), std::string_view("{}\0{", 4),
        std::string_view("\"\\u12"), std::string_view("\"\\\xFF")}) {
    const auto value = ReadJson(text);
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(value.error().message.starts_with("invalid JSON")) << value.error().message;
  }
}

// Texts with changed bytes, beside the library's own reader.
TEST(ReadJson, ReadsWhatTheLibraryReads) {
  const std::vector<std::string> texts = {
      R"( {"a":[1,-2,3.5e-3,0,-0,1e5,18446744073709551615,18446744073709551616,-9223372036854775808],"b":{}} )",
      R"(["","\u0041\n\/\\\"","\ud83d\ude00",true,false,null,{"k":[[],[{}]]}])",
      "\xEF\xBB\xBF[1e-400,0.1,123456789.125,-9223372036854775809,\"\xC3\xA4\xE2\x82\xAC\"]"};
  const std::string bytes = "{}[]\",:\\u0129-+.eE tfn/\t";
  std::minstd_rand random(1);
  int valid = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = texts[random() % texts.size()];
    for (int changes = static_cast<int>(random() % 3); changes > 0; --changes) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0)
        text.erase(at, 1);
      else
        text.insert(at, 1, bytes[random() % bytes.size()]);
    }
    const Json expected = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto read = ReadJson(text);
    if (expected.is_discarded()) {
      // What we read as U+FFFD it refuses.
      if (text.find("\\u") == std::string::npos && IsValidUtf8(text)) {
        EXPECT_FALSE(read) << text;
      }
      continue;
    }
    ++valid;
    ASSERT_TRUE(read) << text << read.error().message;
    EXPECT_EQ(DumpJson(*read), RoundTrip(DumpJson(expected))) << text;
  }
  EXPECT_GT(valid, 5000);
}

size_t Allocated() {
  const auto heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

TEST(MeasureJson, IsWhatTheValueTakesAndNotMuchMore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  const auto repeated = [](const char* one, size_t count) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) text += one;
    text.back() = ']';
    return text;
  };
  for (const std::string& text :
       {repeated("\"\",", 100'000), repeated("0,", 100'000), repeated("[],", 100'000),
        repeated("{},", 100'000),
        repeated("{\"role\":\"user\",\"content\":\"a text of some length\"},", 50'000),
        "[\"" + std::string(1'000'000, '\xFF') + "\"]", "[\"" + std::string(1'000'000, 'x') + "\"]"}) {
    const JsonMemory memory = MeasureJson(text);
    const size_t before = Allocated();
    const auto value = ReadJson(text);
    ASSERT_TRUE(value);
    const size_t taken = Allocated() - before;
    constexpr size_t kPage = 4096;  // a large text has whole pages
    EXPECT_LE(taken, memory.texts + memory.objects + kPage) << text.substr(0, 20);
    EXPECT_GE(3 * taken, memory.texts + memory.objects) << text.substr(0, 20);
  }
  EXPECT_EQ(MeasureJson("[\"" + std::string(1000, '\xFF') + "\"]").texts, 3000U + 1 + 16);
}

TEST(ReadJson, WideIntegersOfASchemaKeepTheirDigits) {
  const std::string text =
      R"({"a":{"const":18446744073709551617},"b":{"enum":[-9223372036854775809,{"x":[340282366920938463463374607431768211457]}]},"c":"\"y\""})";
  EXPECT_EQ(DumpJson(*ReadJson(text)), text);
  const Json other = *ReadJson(R"({"enum":[1],"seed":18446744073709551617,"d":[18446744073709551617]})");
  EXPECT_TRUE(other.at("enum").is_array());
  EXPECT_TRUE(other.at("seed").is_number_float());
  EXPECT_TRUE(other.at("d")[0].is_number_float());
  EXPECT_TRUE(ReadJson("18446744073709551617")->is_number_float());
  EXPECT_FALSE(ReadJson("[1" + std::string(400, '0') + "]"));
}

TEST(ReadJson, BoundsTheDepth) {
  EXPECT_TRUE(ReadJson(Nested(1000)));
  EXPECT_TRUE(ReadJson(Nested(kJsonDepthMax)));
  EXPECT_FALSE(ReadJson(Nested(kJsonDepthMax + 1)));
  const auto deep = ReadJson(std::string(1 << 20, '['));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().code, ErrorCode::kInvalidArgument);
}

TEST(ReadJson, BoundsTheNumberOfValues) {
  std::string text = "[0";
  for (size_t i = 0; i < kJsonValuesMax; ++i) text += ",0";
  const auto value = ReadJson(text + "]");
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, ErrorCode::kTooLarge);
}

TEST(ReadJson, ReadsAnObjectOfManyKeysInLinearTime) {
  // A quadratic reader would need some 10^11 comparisons for this.
  std::string text = "{";
  for (int i = 0; i < 400'000; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  text.back() = '}';
  const auto value = ReadJson(text);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->size(), 400'000U);
}

TEST(ReadMessagePack, RefusesHostileLengthsAndDepths) {
  EXPECT_FALSE(ReadMessagePack(""));
  EXPECT_FALSE(ReadMessagePack("\xDD\xFF\xFF\xFF\xFF"));           // array of 2^32 - 1
  EXPECT_FALSE(ReadMessagePack("\xDB\xFF\xFF\xFF\xFFx"));          // string of 2^32 - 1
  EXPECT_FALSE(ReadMessagePack("\xC6\xFF\xFF\xFF\xFFx"));          // binary of 2^32 - 1
  EXPECT_FALSE(ReadMessagePack(std::string(1 << 20, '\x91')));     // a million nested arrays
  EXPECT_FALSE(ReadMessagePack(std::string(1 << 20, '\x81')));     // maps whose key is a map
  EXPECT_FALSE(ReadMessagePack(std::string_view("\x80\x80", 2)));  // something behind the value
  EXPECT_FALSE(ReadMessagePack("\xDD\xFF\xFF\xFF\xFF" + std::string(kJsonValuesMax + 1, '\x01')));
  EXPECT_FALSE(ReadMessagePack(std::string_view("\xD6\x00\x01\x02\x03\x04", 6)));  // an extension
  EXPECT_TRUE(ReadMessagePack("\x80"));
}

TEST(ReadMessagePack, ReadsValuesOfEveryWidth) {
  Json value = {nullptr, true, false, 1.5F, 1e300, -1, -33, -129, -32'769, -2'147'483'649, int64_t{1} << 62};
  for (const uint64_t number : {0UL, 127UL, 128UL, 255UL, 256UL, 65'535UL, 65'536UL, ~0UL})
    value.push_back(number);
  for (const size_t size : {0, 15, 16, 31, 32, 255, 256, 65'535, 65'536}) {
    value.push_back(std::string(size, 'x'));
    value.push_back(Json::binary(std::vector<uint8_t>(size, 0xFF)));
    value.push_back(Json::array());
    for (size_t i = 0; i < size; ++i) value.back().push_back(i);
    Json object = Json::object();
    object[std::string(size, 'k')] = Json{{"inner", size}};
    value.push_back(std::move(object));
  }
  std::string bytes;
  Json::to_msgpack(value, nlohmann::detail::output_adapter<char>(bytes));
  const auto read = ReadMessagePack(bytes);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, value);
  for (const size_t cut : {size_t{1}, bytes.size() / 2, bytes.size() - 1}) {
    EXPECT_FALSE(ReadMessagePack(std::string_view(bytes).substr(0, cut))) << cut;
  }
}

TEST(ReadMessagePack, BoundsTheNumberOfValues) {
  const std::string bytes = "\x94\x01\x02\x03\x04";  // five values with the array
  EXPECT_TRUE(ReadMessagePack(bytes, 5));
  const auto refused = ReadMessagePack(bytes, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace quire::api
