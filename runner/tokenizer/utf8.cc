#include "runner/tokenizer/utf8.h"

#include <cstring>

namespace quire::runner::tokenizer {
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

Utf8Step NextUtf8(std::string_view text) {
  const LeadByte lead = Lead(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {Utf8Step::Kind::kInvalid, 1};
  uint8_t min = lead.second_min;
  uint8_t max = lead.second_max;
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < min || byte > max) return {Utf8Step::Kind::kInvalid, i};
    min = 0x80;
    max = 0xBF;
  }
  return {Utf8Step::Kind::kCharacter, lead.length};
}

bool IsValidUtf8(std::string_view text) {
  while (true) {
    text.remove_prefix(AsciiPrefix(text));
    if (text.empty()) return true;
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Step::Kind::kCharacter) return false;
    text.remove_prefix(step.length);
  }
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  Utf8Stream stream;
  std::string result = stream.Append(text);
  result += stream.Flush();
  return result;
}

char32_t CodePointAt(std::string_view text, size_t position) {
  const auto first = static_cast<uint8_t>(text[position]);
  const LeadByte lead = Lead(first);
  if (lead.length <= 1) return first;
  char32_t code_point = first & (0x7FU >> lead.length);
  for (size_t i = 1; i < lead.length && position + i < text.size(); ++i) {
    code_point = (code_point << 6U) | (static_cast<uint8_t>(text[position + i]) & 0x3FU);
  }
  return code_point;
}

size_t PreviousCharacter(std::string_view text, size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<uint8_t>(text[position]) & 0xC0U) == 0x80);
  return position;
}

bool IsWhiteSpace(char32_t code_point) {
  switch (code_point) {
    case 0x20:
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return (code_point >= 0x09 && code_point <= 0x0D) || (code_point >= 0x2000 && code_point <= 0x200A);
  }
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
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete) {
      pending_ = rest;
      break;
    }
    out += step.kind == Utf8Step::Kind::kCharacter ? rest.substr(0, step.length) : kReplacementCharacter;
    rest.remove_prefix(step.length);
  }
  return out;
}

std::string Utf8Stream::Flush() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacementCharacter);
}

}  // namespace quire::runner::tokenizer
