#include "runner/output/literal_reader.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/utf8.h"
#include "api/json/read.h"
#include "runner/output/text.h"

namespace quire::runner::output {
namespace {

using api::Json;

bool IsNameByte(char c) {
  return api::IsAsciiAlnum(c) || c == '_' || c == '.' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

void MemberWriter::Set(std::string key, Json value) {
  const auto [place, is_new] = places_.try_emplace(std::move(key), object_.size());
  if (is_new) {
    object_[std::string(place->first)] = std::move(value);
  } else {
    object_.get_ref<Json::object_t&>().begin()[static_cast<std::ptrdiff_t>(place->second)].second =
        std::move(value);
  }
}

void LiteralReader::SkipSpace() {
  while (!at_end() && IsSpace(text_[at_])) ++at_;
}

bool LiteralReader::Consume(std::string_view expected) {
  if (rest().starts_with(expected)) {
    at_ += expected.size();
    return true;
  }
  ran_out_ = ran_out_ || IsBeginOf(rest(), expected);
  return false;
}

std::optional<std::string_view> LiteralReader::ConsumeUntil(std::string_view mark) {
  const size_t found = text_.find(mark, at_);
  if (found == std::string_view::npos) {
    ran_out_ = true;
    return std::nullopt;
  }
  const auto taken = text_.substr(at_, found - at_);
  at_ = found + mark.size();
  return taken;
}

std::string_view LiteralReader::ConsumeName() {
  const size_t begin = at_;
  while (!at_end() && IsNameByte(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::optional<char32_t> LiteralReader::Hex(size_t digits) {
  char32_t value = 0;
  for (size_t i = 0; i < digits; ++i, ++at_) {
    if (at_end()) {
      ran_out_ = true;
      return std::nullopt;
    }
    const int digit = api::HexValue(text_[at_]);
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<char32_t>(digit);
  }
  return value;
}

// The escape after a backslash.
bool LiteralReader::Escape(std::string& out) {
  static constexpr std::array<std::pair<char, char>, 11> kPlain = {{{'n', '\n'},
                                                                    {'t', '\t'},
                                                                    {'r', '\r'},
                                                                    {'b', '\b'},
                                                                    {'f', '\f'},
                                                                    {'v', '\v'},
                                                                    {'a', '\a'},
                                                                    {'/', '/'},
                                                                    {'\\', '\\'},
                                                                    {'"', '"'},
                                                                    {'\'', '\''}}};
  if (at_end()) {
    ran_out_ = true;
    return false;
  }
  const char c = text_[at_++];
  for (const auto& [letter, meaning] : kPlain) {
    if (c != letter) continue;
    out += meaning;
    return true;
  }
  if (c == '\n') return true;  // the line goes on
  const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits == 0) {
    out += '\\';
    out += c;
    return true;
  }
  auto value = Hex(digits);
  if (!value) return false;
  // JSON writes what is beyond 16 bits as a pair.
  if (*value >= 0xD800 && *value < 0xDC00 && rest().starts_with("\\u")) {
    const size_t pair = at_;
    at_ += 2;
    const auto low = Hex(4);
    if (!low) return false;
    if (*low >= 0xDC00 && *low < 0xE000) {
      value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
    } else {
      at_ = pair;
    }
  }
  if (!api::AppendUtf8(out, *value)) out += api::kReplacementCharacter;
  return true;
}

std::optional<std::string> LiteralReader::QuotedString() {
  const char quote = text_[at_];
  const std::string triple(3, quote);
  const bool is_triple = rest().starts_with(triple);
  const std::string_view end = is_triple ? std::string_view(triple) : std::string_view(triple).substr(0, 1);
  at_ += end.size();
  std::string out;
  while (!at_end()) {
    if (Consume(end)) return out;
    const char c = text_[at_++];
    if (c != '\\') {
      out += c;
    } else if (!Escape(out)) {
      return std::nullopt;
    }
  }
  ran_out_ = true;
  return std::nullopt;
}

std::optional<Json> LiteralReader::Number() {
  const size_t begin = at_;
  std::string digits;
  for (; !at_end(); ++at_) {
    const char c = text_[at_];
    const bool part =
        api::IsAsciiDigit(c) || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E' || c == '_';
    if (!part) break;
    if (c != '_') digits += c;
  }
  if (at_end()) {
    ran_out_ = true;
    return std::nullopt;
  }
  if (at_ == begin) return std::nullopt;
  if (auto json = api::ReadJson(digits)) return *std::move(json);
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size() || !std::isfinite(value)) return std::nullopt;
  return Json(value);
}

std::optional<Json> LiteralReader::List(char end, int depth) {
  Json list = Json::array();
  for (SkipSpace(); !Consume(std::string_view(&end, 1)); SkipSpace()) {
    if (!list.empty() && !Consume(",")) return std::nullopt;
    SkipSpace();
    if (Consume(std::string_view(&end, 1))) break;
    auto value = PythonValue(depth + 1);
    if (!value) return std::nullopt;
    list.push_back(*std::move(value));
  }
  return list;
}

std::optional<Json> LiteralReader::Dict(int depth) {
  Json dict = Json::object();
  MemberWriter members(dict);
  for (SkipSpace(); !Consume("}"); SkipSpace()) {
    if (!dict.empty() && !Consume(",")) return std::nullopt;
    SkipSpace();
    if (Consume("}")) break;
    auto key = PythonValue(depth + 1);
    if (!key || key->is_structured()) return std::nullopt;
    SkipSpace();
    if (!Consume(":")) return std::nullopt;
    auto value = PythonValue(depth + 1);
    if (!value) return std::nullopt;
    members.Set(key->is_string() ? key->get<std::string>() : api::DumpJson(*key), *std::move(value));
  }
  return dict;
}

std::optional<Json> LiteralReader::PythonValue(int depth) {
  static constexpr std::array<std::string_view, 2> kTrue = {"True", "true"};
  static constexpr std::array<std::string_view, 2> kFalse = {"False", "false"};
  static constexpr std::array<std::string_view, 2> kNullWords = {"None", "null"};
  SkipSpace();
  if (at_end()) ran_out_ = true;
  if (at_end() || depth > kLiteralDepthMax) return std::nullopt;
  const char c = text_[at_];
  if (c == '"' || c == '\'') {
    auto text = QuotedString();
    if (!text) return std::nullopt;
    return Json(*std::move(text));
  }
  if (c == '[' || c == '(' || c == '{') {
    ++at_;
    return c == '{' ? Dict(depth) : List(c == '[' ? ']' : ')', depth);
  }
  if (api::IsAsciiDigit(c) || c == '-' || c == '+' || c == '.') return Number();
  const size_t begin = at_;
  const auto name = ConsumeName();
  for (size_t i = 0; i < kTrue.size(); ++i) {
    if (name == kTrue[i]) return Json(true);
    if (name == kFalse[i]) return Json(false);
    if (name == kNullWords[i]) return Json(nullptr);
  }
  if (at_end() && begin != at_) ran_out_ = true;
  return std::nullopt;
}

}  // namespace quire::runner::output
