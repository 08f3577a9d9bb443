#include "api/json/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/json/json_text.h"

namespace quire::api {
namespace {

using Object = Json::object_t;

// An integer that no 64 bits hold is kept as its text where its digits count: as binary of this kind.
constexpr uint64_t kWideInteger = 1;
std::atomic<bool> wide_integers_read = false;  // by this process: without any the library writes all

void DumpTo(const Json& value, std::string& text) {
  const auto plain = [](const Json& one) { return one.dump(-1, ' ', false, Json::error_handler_t::replace); };
  if (const auto* object = value.get_ptr<const Object*>()) {
    text += '{';
    for (const auto& [name, member] : *object) {
      if (&member != &object->front().second) text += ',';
      text += plain(Json(name)) + ':';
      DumpTo(member, text);
    }
    text += '}';
  } else if (const auto* array = value.get_ptr<const Json::array_t*>()) {
    text += '[';
    for (const Json& item : *array) {
      if (&item != &array->front()) text += ',';
      DumpTo(item, text);
    }
    text += ']';
  } else if (const auto* bytes = value.get_ptr<const Json::binary_t*>();
             bytes != nullptr && bytes->has_subtype() && bytes->subtype() == kWideInteger) {
    text.append(bytes->begin(), bytes->end());
  } else {
    text += plain(value);
  }
}

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

// Builds a Json of the values that a parser reads, and gives up, before memory is taken, on input that is too
// deep or has too many values.
class BoundedBuilder {
 public:
  using binary_t = Json::binary_t;

  explicit BoundedBuilder(size_t values_max = kJsonValuesMax) : values_max_(values_max) {}

  bool null() { return Count() && Add(nullptr); }
  bool boolean(bool value) { return Count() && Add(value); }
  bool number_integer(int64_t value) { return Count() && Add(value); }
  bool number_unsigned(uint64_t value) { return Count() && Add(value); }
  bool number_float(double value) { return Count() && Add(value); }
  bool wide_integer(std::string_view text) {
    if (!InValuesOfSchema()) {
      const double value = std::strtod(std::string(text).c_str(), nullptr);
      return std::isfinite(value) ? number_float(value) : range_error();
    }
    wide_integers_read = true;
    return binary(Json::binary_t(std::vector<uint8_t>(text.begin(), text.end()), kWideInteger));
  }
  bool string(const JsonString& text) { return Count() && Add(text.Value()); }
  bool string(std::string_view text) { return Count() && Add(std::string(text)); }
  bool binary(binary_t&& value) { return Count() && Add(std::move(value)); }
  bool start_object() { return Open(Json::object()); }
  bool start_array() { return Open(Json::array()); }
  bool end_array() {
    if (values_depth_ == open_.size()) values_depth_ = 0;
    open_.pop_back();
    return true;
  }
  bool end_object() {
    ResolveRepeatedKeys(*open_.back()->get_ptr<Object*>());
    open_.pop_back();
    return true;
  }
  bool key(const JsonString& name) { return Count() && SetKey(name.Value()); }
  bool key(std::string_view name) { return Count() && SetKey(std::string(name)); }
  bool syntax_error(size_t position) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("at byte {}", position));
  }
  bool range_error() { return Fail(ErrorCode::kInvalidArgument, "number out of range"); }

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
  // REQUIRES: it was counted.
  template <class Value>
  bool Add(Value&& value) {
    Put(Json(std::forward<Value>(value)));
    return true;
  }
  bool SetKey(std::string name) {
    key_ = std::move(name);
    return true;
  }
  // True within those values of a JSON schema that an answer has to repeat as they are written.
  bool InValuesOfSchema() const {
    return values_depth_ > 0 || (!open_.empty() && open_.back()->is_object() && key_ == "const");
  }
  bool Open(Json container) {
    const bool in_values = container.is_array() && !open_.empty() && open_.back()->is_object() &&
                           (key_ == "enum" || key_ == "const");
    if (open_.size() >= kJsonDepthMax) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("nested deeper than {} levels", kJsonDepthMax));
    }
    if (!Count()) return false;
    open_.push_back(Put(std::move(container)));
    if (in_values && values_depth_ == 0) values_depth_ = open_.size();
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
  size_t values_depth_ = 0;  // of the list of such values that is open; 0: none
  std::string key_;
  size_t values_ = 0;
  Error error_{ErrorCode::kInvalidArgument, "malformed"};
};

// Reads MessagePack into a BoundedBuilder. Texts and binaries are copied whole: byte by byte, 32 MiB take
// 0.15 s.
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
    return bits && builder_.number_float(std::bit_cast<Float>(*bits));
  }
  bool ReadText(std::optional<size_t> size) {
    const auto bytes = ReadBytes(size);
    if (!bytes) return false;
    return builder_.string(*bytes);
  }
  bool ReadBinary(std::optional<size_t> size) {
    const auto bytes = ReadBytes(size);
    if (!bytes) return false;
    return builder_.binary(Json::binary_t(std::vector<uint8_t>(bytes->begin(), bytes->end())));
  }
  bool ReadArray(std::optional<size_t> size) {
    if (!size || !builder_.start_array()) return false;
    for (size_t i = 0; i < *size; ++i) {
      if (!ReadValue()) return false;
    }
    return builder_.end_array();
  }
  bool ReadMap(std::optional<size_t> size) {
    if (!size || !builder_.start_object()) return false;
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
    return builder_.key(*bytes);
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

// Adds up what BoundedBuilder would take, and gives up where it would.
class MeasuringReceiver {
 public:
  bool null() { return Count(); }
  bool boolean(bool) { return Count(); }
  bool number_integer(int64_t) { return Count(); }
  bool number_unsigned(uint64_t) { return Count(); }
  bool number_float(double) { return Count(); }
  bool wide_integer(std::string_view text) {
    memory_.objects += kBlockBytes + sizeof(Json::binary_t) + text.size();
    return Count();
  }
  bool string(const JsonString& text) {
    memory_.objects += kBlockBytes + sizeof(std::string);
    return AddText(text) && Count();
  }
  bool key(const JsonString& name) {
    memory_.objects += 2 * (sizeof(Object::value_type) - sizeof(Json)) + 2 * sizeof(uint64_t);
    return AddText(name) && Count();
  }
  bool start_object() { return Open(); }
  bool start_array() { return Open(); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool syntax_error(size_t) { return false; }
  bool range_error() { return false; }

  const JsonMemory& memory() const { return memory_; }

 private:
  static constexpr size_t kBlockBytes = 16;  // of the allocator, for each block
  static constexpr size_t kInPlace = 15;     // bytes of a text that need no block

  bool AddText(const JsonString& text) {
    if (text.bytes > kInPlace) memory_.texts += text.bytes + 1 + kBlockBytes;
    return true;
  }
  // A list that grows is there twice for a moment.
  bool Count() {
    memory_.objects += 2 * sizeof(Json);
    return ++values_ <= kJsonValuesMax;
  }
  bool Open() {
    memory_.objects += 2 * kBlockBytes + sizeof(Json::array_t);
    return ++depth_ <= kJsonDepthMax && Count();
  }
  bool Close() {
    --depth_;
    return true;
  }

  JsonMemory memory_;
  size_t values_ = 0;
  size_t depth_ = 0;
};

}  // namespace

Result<Json> ReadJson(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "invalid JSON: raw NUL byte");
  }
  BoundedBuilder builder;
  if (JsonTextParser(text, builder).Parse()) return builder.TakeRoot();
  Error error = builder.TakeError();
  error.message = "invalid JSON: " + error.message;
  return std::unexpected(std::move(error));
}

JsonMemory MeasureJson(std::string_view text) {
  MeasuringReceiver receiver;
  JsonTextParser(text, receiver).Parse();
  return receiver.memory();
}

Result<Json> ReadMessagePack(std::string_view bytes, size_t values_max) {
  BoundedBuilder builder(values_max);
  if (MessagePackParser(bytes, builder).Parse()) return builder.TakeRoot();
  Error error = builder.TakeError();
  error.message = "invalid MessagePack: " + error.message;
  return std::unexpected(std::move(error));
}

std::string DumpJson(const Json& value) {
  if (!wide_integers_read) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  DumpTo(value, text);
  return text;
}

}  // namespace quire::api
