#include "api/json/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "api/base/ascii.h"
#include "api/base/utf8.h"

namespace quire::api {
namespace {

using Object = Json::object_t;

// Keeps one member per key: the last value, at the place where the key first stood.
void ResolveRepeatedKeys(Object& object) {
  constexpr size_t kPairwise = 16;
  if (object.size() < 2) return;
  size_t kept = 0;
  auto& members = static_cast<Object::Base&>(object);
  const auto settle = [&](size_t same, size_t i) {
    if (same < kept) {
      members[same].second = std::move(members[i].second);
      return;
    }
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  };
  if (members.size() <= kPairwise) {
    for (size_t i = 0; i < members.size(); ++i) {
      size_t same = 0;
      while (same < kept && members[same].first != members[i].first) ++same;
      settle(same, i);
    }
  } else {
    // Sorted, not hashed: a client can choose keys of the same hash.
    std::vector<uint32_t> order(members.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
      const int compared = members[a].first.compare(members[b].first);
      return compared != 0 ? compared < 0 : a < b;
    });
    std::vector<uint32_t> first(members.size());  // of the members with this one's key
    for (size_t i = 0; i < order.size(); ++i) {
      const bool again = i > 0 && members[order[i]].first == members[order[i - 1]].first;
      first[order[i]] = again ? first[order[i - 1]] : order[i];
    }
    std::vector<size_t> places(members.size());  // of the first ones, among those that are kept
    for (size_t i = 0; i < members.size(); ++i) {
      if (first[i] == i) places[i] = kept;
      settle(places[first[i]], i);
    }
  }
  members.resize(kept);
}

// SAX receiver that builds a Json and gives up, before memory is taken, on input that is too deep or has too
// many values.
class BoundedBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(number_integer_t value) { return Add(value); }
  bool number_unsigned(number_unsigned_t value) { return Add(value); }
  bool number_float(number_float_t value, const string_t&) { return Add(value); }
  bool string(string_t& value) { return Add(std::move(value)); }
  bool binary(binary_t& value) { return Add(std::move(value)); }
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool end_object() {
    ResolveRepeatedKeys(*open_.back()->get_ptr<Object*>());
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) {
    key_ = std::move(name);
    return Count();
  }
  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception& e) {
    if (e.id == 406) return Fail(ErrorCode::kInvalidArgument, "number out of range");
    return Fail(ErrorCode::kInvalidArgument, fmt::format("at byte {}", position));
  }

  Json TakeRoot() { return std::move(root_); }
  Error TakeError() { return std::move(error_); }

 private:
  bool Fail(ErrorCode code, std::string message) {
    error_ = {code, std::move(message)};
    return false;
  }
  bool Count() {
    if (++values_ <= kJsonValuesMax) return true;
    return Fail(ErrorCode::kTooLarge, "too many values");
  }
  template <class Value>
  bool Add(Value&& value) {
    if (!Count()) return false;
    Put(Json(std::forward<Value>(value)));
    return true;
  }
  bool Open(Json container) {
    if (open_.size() >= kJsonDepthMax) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("nested deeper than {} levels", kJsonDepthMax));
    }
    if (!Count()) return false;
    open_.push_back(Put(std::move(container)));
    return true;
  }
  // The address stays good while the value is open: its parent takes nothing else until it is closed.
  Json* Put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* array = open_.back()->get_ptr<Json::array_t*>()) {
      array->push_back(std::move(value));
      return &array->back();
    }
    auto& object = *open_.back()->get_ptr<Object*>();
    object.emplace_back(std::move(key_), std::move(value));
    return &object.back().second;
  }

  Json root_;
  std::vector<Json*> open_;
  string_t key_;
  size_t values_ = 0;
  Error error_{ErrorCode::kInvalidArgument, "malformed"};
};

bool IsHex4(std::string_view text, size_t at, uint32_t& value) {
  if (at + 4 > text.size()) return false;
  value = 0;
  for (const char c : text.substr(at, 4)) {
    const int digit = HexValue(c);
    if (digit < 0) return false;
    value = value * 16 + static_cast<uint32_t>(digit);
  }
  return true;
}

// Appends the escape that starts at `at` to `out`, a lone surrogate as U+FFFD, and gives the offset behind
// it.
size_t CopyEscape(std::string_view text, size_t at, std::string& out) {
  uint32_t unit = 0;
  if (at + 1 >= text.size() || text[at + 1] != 'u' || !IsHex4(text, at + 2, unit)) {
    const size_t end = std::min(at + 2, text.size());
    if (end - at == 2 && static_cast<unsigned char>(text[at + 1]) >= 0x80) {
      out += '\\';
      return at + 1;
    }
    out.append(text.substr(at, end - at));
    return end;
  }
  size_t length = 6;
  bool lone = unit >= 0xDC00 && unit <= 0xDFFF;
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    uint32_t low = 0;
    const bool paired =
        text.substr(at + 6, 2) == "\\u" && IsHex4(text, at + 8, low) && low >= 0xDC00 && low <= 0xDFFF;
    lone = !paired;
    if (paired) length = 12;
  }
  if (lone) {
    out += "\\ufffd";
  } else {
    out.append(text.substr(at, length));
  }
  return at + length;
}

// The text with every ill-formed UTF-8 byte and every escaped lone surrogate replaced by U+FFFD.
std::string RepairUtf(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '\\') {
      at = CopyEscape(text, at, out);
    } else if (byte < 0x80) {
      out += text[at++];
    } else {
      const CodePoint next = CodePointAt(text, at);
      const size_t length = next.whole() ? next.bytes : 1;
      out += next.whole() ? text.substr(at, length) : kReplacementCharacter;
      at += length;
    }
  }
  return out;
}

}  // namespace

Result<Json> ReadJson(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "invalid JSON: raw NUL byte");
  }
  BoundedBuilder builder;
  if (Json::sax_parse(text, &builder)) return builder.TakeRoot();
  Error error = builder.TakeError();
  if (error.code == ErrorCode::kInvalidArgument) {
    const std::string repaired = RepairUtf(text);
    if (repaired != text) {
      BoundedBuilder second;
      if (Json::sax_parse(repaired, &second)) return second.TakeRoot();
      error = second.TakeError();
    }
  }
  error.message = "invalid JSON: " + error.message;
  return std::unexpected(std::move(error));
}

Result<Json> ReadMessagePack(std::string_view bytes) {
  BoundedBuilder builder;
  if (Json::sax_parse(bytes.begin(), bytes.end(), &builder, Json::input_format_t::msgpack))
    return builder.TakeRoot();
  Error error = builder.TakeError();
  error.message = "invalid MessagePack: " + error.message;
  return std::unexpected(std::move(error));
}

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace quire::api
