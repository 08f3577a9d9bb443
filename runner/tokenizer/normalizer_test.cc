#include "runner/tokenizer/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <string>

namespace quire::runner::tokenizer {
namespace {

std::string EncodeUtf8(char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(length)};
}

TEST(Normalizer, Composes) {
  EXPECT_EQ(Normalize(NormalForm::kNfc, "e\u0301"), "\u00E9");
  EXPECT_EQ(Normalize(NormalForm::kNfc, "\u212B"), "\u00C5");                // Angstrom sign
  EXPECT_EQ(Normalize(NormalForm::kNfc, "\u1100\u1161\u11A8"), "\uAC01");    // Hangul
  EXPECT_EQ(Normalize(NormalForm::kNfc, "q\u0307\u0323"), "q\u0323\u0307");  // order of marks
  EXPECT_EQ(Normalize(NormalForm::kNfc, "\u0958"), "\u0915\u093C");          // composition exclusion
  EXPECT_EQ(Normalize(NormalForm::kNfc, "\uFB01"), "\uFB01");                // compatibility stays
  EXPECT_EQ(Normalize(NormalForm::kNfkc, "\uFB01\u00A0x"), "fi x");
  EXPECT_EQ(Normalize(NormalForm::kNfd, "\u00E9\uAC01"), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(Normalize(NormalForm::kNfkd, "\uFDFA").size(), 33U);  // the longest expansion
  EXPECT_EQ(Normalize(NormalForm::kNone, "e\u0301"), "e\u0301");
  EXPECT_EQ(Normalize(NormalForm::kNfc, ""), "");
  EXPECT_FALSE(MayChange(NormalForm::kNfc, "plain \u00E9 and \u02FF"));
}

// The library's own one-call normalization is the truth on short texts, where its ordering of marks is quick.
TEST(Normalizer, AgreesWithTheLibraryOnRandomTexts) {
  std::mt19937 random(7);
  const char32_t pool[] = {U'a',   U'e',   U'K',   U' ',    0x300,   0x301,  0x307,  0x323,  0x327,
                           0x345,  0x5B0,  0x5B7,  0x1100,  0x1161,  0x11A8, 0xAC00, 0x0928, 0x093C,
                           0x1E9B, 0x212B, 0xFB01, 0x1D15E, 0x2F800, 0x3099, 0x30AB, 0x0F73, 0x0344};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const size_t length = random() % 12;
    for (size_t i = 0; i < length; ++i) {
      text += EncodeUtf8(random() % 4 == 0 ? static_cast<char32_t>(0xA0 + random() % 0x3000)
                                           : pool[random() % std::size(pool)]);
    }
    const std::pair<NormalForm, int> forms[] = {
        {NormalForm::kNfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
        {NormalForm::kNfd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
        {NormalForm::kNfkc, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
        {NormalForm::kNfkd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
    for (const auto& [form, options] : forms) {
      utf8proc_uint8_t* expected = nullptr;
      const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &expected,
                                     static_cast<utf8proc_option_t>(options));
      ASSERT_GE(size, 0);
      EXPECT_EQ(Normalize(form, text),
                std::string(reinterpret_cast<char*>(expected), static_cast<size_t>(size)));
      std::free(expected);
    }
  }
}

TEST(Normalizer, OrdersALongRunOfMarks) {
  std::string text = "a";
  std::string below = "a";
  std::string above;
  for (int i = 0; i < 200'000; ++i) {
    text += "\u0313\u0331";
    below += "\u0331";
    above += "\u0313";
  }
  EXPECT_EQ(Normalize(NormalForm::kNfd, text), below + above);
}

}  // namespace
}  // namespace quire::runner::tokenizer
