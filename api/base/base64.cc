#include "api/base/base64.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace quire::api {
namespace {

constexpr uint8_t kBlank = 64, kPadding = 65, kNone = 66;

constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<uint8_t, 256> kSixBits = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNone);
  for (size_t i = 0; i < kBase64Digits.size(); ++i)
    values[static_cast<uint8_t>(kBase64Digits[i])] = static_cast<uint8_t>(i);
  values['-'] = values['+'];
  values['_'] = values['/'];
  for (const char blank : {' ', '\t', '\r', '\n'}) values[static_cast<uint8_t>(blank)] = kBlank;
  values['='] = kPadding;
  return values;
}();

std::string QuotedByte(char character) {
  const bool printable = character > ' ' && character < '\x7f';
  return printable ? fmt::format("'{}'", character)
                   : fmt::format("0x{:02x}", static_cast<uint8_t>(character));
}

}  // namespace

Result<void> DecodeBase64(std::string& text, size_t from) {
  uint32_t bits = 0;
  size_t digits = 0, padding = 0, written = 0;
  for (size_t i = from; i < text.size(); ++i) {
    const uint8_t value = kSixBits[static_cast<uint8_t>(text[i])];
    if (value == kBlank) continue;
    padding += value == kPadding ? 1 : 0;
    if (value == kNone || (padding > 0 && value != kPadding)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("is not base64: byte {} is {}", i - from, QuotedByte(text[i])));
    }
    if (padding > 0) continue;
    bits = bits << 6U | value;
    if (++digits % 4 != 0) continue;
    for (const uint32_t shift : {16U, 8U, 0U}) text[written++] = static_cast<char>(bits >> shift & 0xffU);
    bits = 0;
  }
  const size_t rest = digits % 4;
  if (rest == 1) return Fail(ErrorCode::kInvalidArgument, "is not base64: a character is missing at its end");
  if (padding > 0 && (rest == 0 || rest + padding != 4)) {
    return Fail(ErrorCode::kInvalidArgument, "is not base64: its padding does not fit its length");
  }
  if (rest == 2) text[written++] = static_cast<char>(bits >> 4U & 0xffU);
  if (rest == 3) {
    text[written++] = static_cast<char>(bits >> 10U & 0xffU);
    text[written++] = static_cast<char>(bits >> 2U & 0xffU);
  }
  text.resize(written);
  return {};
}

void AppendBase64(std::string& out, std::string_view bytes) {
  out.reserve(out.size() + (bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view three = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < three.size(); ++j)
      bits |= uint32_t{static_cast<uint8_t>(three[j])} << (16 - 8 * j);
    for (size_t place = 0; place < 4; ++place)
      out += place <= three.size() ? kBase64Digits[bits >> (18 - 6 * place) & 63U] : '=';
  }
}

}  // namespace quire::api
