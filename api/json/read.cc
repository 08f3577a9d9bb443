#include "api/json/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <type_traits>
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

  explicit BoundedBuilder(size_t values_max = kJsonValuesMax) : values_max_(values_max) {}

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
    if (++values_ <= values_max_) return true;
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

  const size_t values_max_;
  Json root_;
  std::vector<Json*> open_;
  string_t key_;
  size_t values_ = 0;
  Error error_{ErrorCode::kInvalidArgument, "malformed"};
};

// Reads MessagePack into a BoundedBuilder. Texts and binaries are copied whole: byte by byte, 32 MiB take 0.15 s.
class MessagePackParser {
 public:
  MessagePackParser(std::string_view bytes, BoundedBuilder& builder) : rest_(bytes), builder_(builder) {}

  bool Parse() { return ReadValue() && rest_.empty(); }

 private:
  template <std::unsigned_integral T>
  std::optional<T> ReadNumber() {
    if (rest_.size() < sizeof(T)) return std::nullopt;
    uint64_t number = 0;
    for (size_t i = 0; i < sizeof(T); ++i) number = number << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(sizeof(T));
    return static_cast<T>(number);
  }
  // Big-endian, of 1, 2 or 4 bytes: 1 << `log2`.
  std::optional<size_t> ReadSize(int log2) {
    if (log2 == 0) return ReadNumber<uint8_t>();
    if (log2 == 1) return ReadNumber<uint16_t>();
    return ReadNumber<uint32_t>();
  }
  std::optional<std::string_view> ReadBytes(std::optional<size_t> size) {
    if (!size || rest_.size() < *size) return std::nullopt;
    const std::string_view bytes = rest_.substr(0, *size);
    rest_.remove_prefix(*size);
    return bytes;
  }

  template <std::unsigned_integral T>
  bool ReadUnsigned() {
    const auto number = ReadNumber<T>();
    return number && builder_.number_unsigned(*number);
  }
  template <std::unsigned_integral T>
  bool ReadSigned() {
    const auto number = ReadNumber<T>();
    return number && builder_.number_integer(static_cast<std::make_signed_t<T>>(*number));
  }
  template <class Float, std::unsigned_integral T>
  bool ReadFloat() {
    const auto bits = ReadNumber<T>();
    return bits && builder_.number_float(std::bit_cast<Float>(*bits), {});
  }
  bool ReadText(std::optional<size_t> size) {
    const auto bytes = ReadBytes(size);
    if (!bytes) return false;
    std::string text(*bytes);
    return builder_.string(text);
  }
  bool ReadBinary(std::optional<size_t> size) {
    const auto bytes = ReadBytes(size);
    if (!bytes) return false;
    Json::binary_t binary(std::vector<uint8_t>(bytes->begin(), bytes->end()));
    return builder_.binary(binary);
  }
  bool ReadArray(std::optional<size_t> size) {
    if (!size || !builder_.start_array(*size)) return false;
    for (size_t i = 0; i < *size; ++i) {
      if (!ReadValue()) return false;
    }
    return builder_.end_array();
  }
  bool ReadMap(std::optional<size_t> size) {
    if (!size || !builder_.start_object(*size)) return false;
    for (size_t i = 0; i < *size; ++i) {
      if (!ReadKey() || !ReadValue()) return false;
    }
    return builder_.end_object();
  }
  bool ReadKey() {
    const auto head = ReadNumber<uint8_t>();
    if (!head) return false;
    std::optional<size_t> size;
    if ((*head & 0xe0) == 0xa0) size = *head & 0x1f;
    if (*head >= 0xd9 && *head <= 0xdb) size = ReadSize(*head - 0xd9);
    const auto bytes = ReadBytes(size);
    if (!bytes) return false;
    std::string key(*bytes);
    return builder_.key(key);
  }
  // Recursive: the builder refuses what is nested too deep.
  bool ReadValue() {
    const auto head = ReadNumber<uint8_t>();
    if (!head) return false;
    const int byte = *head;
    if (byte < 0x80) return builder_.number_unsigned(*head);
    if (byte < 0x90) return ReadMap(byte & 0x0f);
    if (byte < 0xa0) return ReadArray(byte & 0x0f);
    if (byte < 0xc0) return ReadText(byte & 0x1f);
    if (byte >= 0xe0) return builder_.number_integer(static_cast<int8_t>(*head));
    switch (byte) {
      case 0xc0:
        return builder_.null();
      case 0xc2:
      case 0xc3:
        return builder_.boolean(byte == 0xc3);
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return ReadBinary(ReadSize(byte - 0xc4));
      case 0xca:
        return ReadFloat<float, uint32_t>();
      case 0xcb:
        return ReadFloat<double, uint64_t>();
      case 0xcc:
        return ReadUnsigned<uint8_t>();
      case 0xcd:
        return ReadUnsigned<uint16_t>();
      case 0xce:
        return ReadUnsigned<uint32_t>();
      case 0xcf:
        return ReadUnsigned<uint64_t>();
      case 0xd0:
        return ReadSigned<uint8_t>();
      case 0xd1:
        return ReadSigned<uint16_t>();
      case 0xd2:
        return ReadSigned<uint32_t>();
      case 0xd3:
        return ReadSigned<uint64_t>();
      case 0xd9:
      case 0xda:
      case 0xdb:
        return ReadText(ReadSize(byte - 0xd9));
      case 0xdc:
      case 0xdd:
        return ReadArray(ReadSize(byte - 0xdc + 1));
      case 0xde:
      case 0xdf:
        return ReadMap(ReadSize(byte - 0xde + 1));
      default:
        return false;
    }
  }

  std::string_view rest_;
  BoundedBuilder& builder_;
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

Result<Json> ReadMessagePack(std::string_view bytes, size_t values_max) {
  BoundedBuilder builder(values_max);
  if (MessagePackParser(bytes, builder).Parse()) return builder.TakeRoot();
  Error error = builder.TakeError();
  error.message = "invalid MessagePack: " + error.message;
  return std::unexpected(std::move(error));
}

std::string DumpJson(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace quire::api
