#include "runner/tokenizer/bert_text.h"

#include <utf8proc.h>

#include "api/base/utf8.h"
#include "runner/tokenizer/normalizer.h"

namespace quire::runner::tokenizer {
namespace {

bool IsDropped(char32_t c) {
  if (c == 0 || c == 0xFFFD) return true;
  if (c == '\t' || c == '\n' || c == '\r') return false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
      return true;
    default:
      return false;
  }
}

bool IsSpace(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r' || c == ' ') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// The ranges that BERT's published tokenizer isolates.
bool IsHan(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool IsAscii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}

void AppendLower(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one letter whose lower case is two characters
    out += "i\xCC\x87";
    return;
  }
  api::AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace

std::string BertText::Apply(std::string_view text) const {
  std::string first;
  first.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    const api::CodePoint c = api::CodePointAt(text, at);
    const std::string_view bytes = text.substr(at, c.bytes);
    at += c.bytes;
    if (clean && IsDropped(c.value)) continue;
    if (clean && IsSpace(c.value)) {
      first += ' ';
    } else if (isolate_han && IsHan(c.value)) {
      first += ' ';
      first += bytes;
      first += ' ';
    } else {
      first += bytes;
    }
  }
  if (!strip_accents && !lowercase) return first;
  if (strip_accents && !IsAscii(first)) first = Normalize(NormalForm::kNfd, first);
  std::string second;
  second.reserve(first.size());
  for (size_t at = 0; at < first.size();) {
    const api::CodePoint c = api::CodePointAt(first, at);
    const std::string_view bytes = std::string_view(first).substr(at, c.bytes);
    at += c.bytes;
    const auto code_point = static_cast<utf8proc_int32_t>(c.value);
    if (strip_accents && c.bytes > 1 && utf8proc_category(code_point) == UTF8PROC_CATEGORY_MN) continue;
    if (lowercase) {
      AppendLower(second, c.value);
    } else {
      second += bytes;
    }
  }
  return second;
}

}  // namespace quire::runner::tokenizer
