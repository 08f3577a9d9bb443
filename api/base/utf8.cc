#include "api/base/utf8.h"

#include <algorithm>
#include <cstring>

namespace quire::api {
namespace {

struct LeadByte {
  uint8_t length = 0;  // of the whole character; 0 = no character begins so
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

LeadByte Lead(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

size_t AsciiPrefix(std::string_view text) {
  size_t position = 0;
  while (position + sizeof(uint64_t) <= text.size()) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + position, sizeof(word));
    if ((word & 0x8080808080808080U) != 0) break;
    position += sizeof(word);
  }
  while (position < text.size() && static_cast<uint8_t>(text[position]) < 0x80) ++position;
  return position;
}

}  // namespace

CodePoint CodePointAt(std::string_view text, size_t at) {
  text.remove_prefix(at);
  const auto first = static_cast<uint8_t>(text[0]);
  const LeadByte lead = Lead(first);
  if (lead.length == 0) return {.bytes = 1};
  if (lead.length == 1) return {first, 1, CodePoint::Kind::kWhole};
  char32_t value = first & (0x7FU >> lead.length);
  uint8_t min = lead.second_min;
  uint8_t max = lead.second_max;
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {.bytes = i, .kind = CodePoint::Kind::kIncomplete};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < min || byte > max) return {.bytes = i};
    value = value << 6U | (byte & 0x3FU);
    min = 0x80;
    max = 0xBF;
  }
  return {value, lead.length, CodePoint::Kind::kWhole};
}

CodePoint CodePointBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && IsContinuationByte(text[begin])) --begin;
  return CodePointAt(text, begin);
}

bool IsValidUtf8(std::string_view text) {
  while (true) {
    text.remove_prefix(AsciiPrefix(text));
    if (text.empty()) return true;
    const CodePoint next = CodePointAt(text);
    if (!next.whole()) return false;
    text.remove_prefix(next.bytes);
  }
}

size_t CountCodePoints(std::string_view text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, IsContinuationByte));
}

bool AppendUtf8(std::string& out, char32_t value) {
  if (value > 0x10FFFF || IsSurrogate(value)) return false;
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (value < 0x80) {
    put(value);
    return true;
  }
  if (value < 0x800) {
    put(0xC0 | value >> 6);
  } else {
    if (value < 0x10000) {
      put(0xE0 | value >> 12);
    } else {
      put(0xF0 | value >> 18);
      put(0x80 | (value >> 12 & 0x3F));
    }
    put(0x80 | (value >> 6 & 0x3F));
  }
  put(0x80 | (value & 0x3F));
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  Utf8Stream stream;
  std::string result = stream.Append(text);
  result += stream.Flush();
  return result;
}

std::string Utf8Stream::Append(std::string_view bytes) {
  std::string joined;
  std::string_view rest = bytes;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    rest = joined;
    pending_.clear();
  }
  std::string out;
  out.reserve(rest.size());
  while (!rest.empty()) {
    const size_t ascii = AsciiPrefix(rest);
    out += rest.substr(0, ascii);
    rest.remove_prefix(ascii);
    if (rest.empty()) break;
    const CodePoint next = CodePointAt(rest);
    if (next.kind == CodePoint::Kind::kIncomplete) {
      pending_ = rest;
      break;
    }
    out += next.whole() ? rest.substr(0, next.bytes) : kReplacementCharacter;
    rest.remove_prefix(next.bytes);
  }
  return out;
}

std::string Utf8Stream::Flush() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace quire::api
