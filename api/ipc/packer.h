// MessagePack of structs that have VisitFields(struct, visit), which calls visit(name, member, bounds...) for
// every member. A Packer ignores the bounds; the Unpacker of frame.cc checks them.
//
// On the wire: struct = map; variant = map of its alternative with "kind", the index; vector of numbers =
// their bytes in memory (both ends are one machine); enum = its number.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace quire::api::ipc {

// The bound of a string whose bytes need not be UTF-8.
struct Binary {};

template <class T>
concept Text = std::same_as<T, std::string>;
template <class T>
concept Optional = requires(const T& value) {
  value.has_value();
};
template <class T>
concept Variant = requires {
  std::variant_size<T>::value;
};
template <class T>
concept List = requires(const T& value) {
  value.data();
}
&&!Text<T>;
template <class T>
concept NumberList = List<T> && std::is_arithmetic_v<typename T::value_type>;

template <class T>
bool IsEmpty(const T& value) {
  if constexpr (Optional<T>) return !value.has_value();
  if constexpr (!Optional<T>) return value.empty();
}

// The members that a Packer writes.
struct FieldCount {
  size_t count = 0;
  template <class T, class... Bounds>
  void operator()(std::string_view, const T&, Bounds...) {
    ++count;
  }
  template <class T>
  void IfAny(std::string_view, const T& value) {
    if (!IsEmpty(value)) ++count;
  }
};

// Appends to a string; allocates nothing else.
class Packer {
 public:
  explicit Packer(std::string& out) : out_(out) {}

  template <class T, class... Bounds>
  void operator()(std::string_view name, const T& value, Bounds...) {
    PutText(name);
    if constexpr ((std::same_as<Bounds, Binary> || ...)) {
      PutBytes(value);
    } else {
      Put(value);
    }
  }
  // A member that is left out when it is empty.
  template <class T>
  void IfAny(std::string_view name, const T& value) {
    if (!IsEmpty(value)) (*this)(name, value);
  }

  template <class T>
  void Put(const T& value) {
    if constexpr (std::same_as<T, bool>) {
      out_ += value ? '\xc3' : '\xc2';
    } else if constexpr (std::is_enum_v<T>) {
      Put(std::to_underlying(value));
    } else if constexpr (std::integral<T>) {
      PutInteger(value);
    } else if constexpr (std::same_as<T, float>) {
      PutNumber('\xca', std::bit_cast<uint32_t>(value));
    } else if constexpr (Text<T>) {
      PutText(value);
    } else if constexpr (Optional<T>) {
      Put(*value);
    } else if constexpr (Variant<T>) {
      std::visit([&](const auto& alternative) { PutStruct(alternative, value.index()); }, value);
    } else if constexpr (NumberList<T>) {
      PutBytes({reinterpret_cast<const char*>(value.data()), value.size() * sizeof(*value.data())});
    } else if constexpr (List<T>) {
      PutSize(value.size(), 0x90, 16, {'\0', '\xdc', '\xdd'});
      for (const auto& element : value) Put(element);
    } else {
      PutStruct(value);
    }
  }

 private:
  struct Prefixes {  // before a size of 1, 2 and 4 bytes; '\0': no such size
    char one, two, four;
  };

  template <class T>
  void PutStruct(const T& value, std::optional<size_t> kind = std::nullopt) {
    FieldCount fields{kind ? size_t{1} : 0};
    VisitFields(value, fields);
    PutSize(fields.count, 0x80, 16, {'\0', '\xde', '\xdf'});
    if (kind) (*this)("kind", *kind);
    VisitFields(value, *this);
  }
  void PutText(std::string_view text) {
    PutSize(text.size(), 0xa0, 32, {'\xd9', '\xda', '\xdb'});
    out_ += text;
  }
  void PutBytes(std::string_view bytes) {
    PutSize(bytes.size(), 0, 0, {'\xc4', '\xc5', '\xc6'});
    out_ += bytes;
  }
  template <std::integral T>
  void PutInteger(T value) {
    if (std::cmp_less(value, 0)) return PutNumber('\xd3', static_cast<uint64_t>(value));
    const auto number = static_cast<uint64_t>(value);
    if (number >> 32 != 0) return PutNumber('\xcf', number);
    PutSize(number, 0, 0x80, {'\xcc', '\xcd', '\xce'});
  }
  // Below `in_place_max` the first byte holds the size.
  void PutSize(size_t size, uint8_t in_place, size_t in_place_max, Prefixes prefixes) {
    if (size < in_place_max) {
      out_ += static_cast<char>(in_place | size);
    } else if (size <= 0xff && prefixes.one != '\0') {
      PutNumber(prefixes.one, static_cast<uint8_t>(size));
    } else if (size <= 0xffff) {
      PutNumber(prefixes.two, static_cast<uint16_t>(size));
    } else {
      PutNumber(prefixes.four, static_cast<uint32_t>(size));
    }
  }
  // MessagePack is big-endian.
  template <std::unsigned_integral T>
  void PutNumber(char prefix, T number) {
    out_ += prefix;
    for (size_t bits = 8 * sizeof(T); bits != 0; bits -= 8) {
      out_ += static_cast<char>(uint64_t{number} >> (bits - 8) & 0xff);
    }
  }

  std::string& out_;
};

}  // namespace quire::api::ipc
