// MessagePack of structs that have VisitFields(struct, visit), which calls visit(name, member, bounds...) for
// every member. A Packer ignores the bounds; an Unpacker passes them to Fields::Get().
//
// On the wire: struct = map; variant = map of its alternative with "kind", the index; vector of numbers =
// their bytes in memory (both ends are one machine); enum = its number.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "api/base/ids.h"
#include "api/json/fields.h"
#include "api/json/type.h"

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

// Reads one map. Every member must be there but those of IfAny(); the first error ends it and names the member.
class Unpacker {
 public:
  Unpacker(const Json& value, std::string path, FirstError& error)
      : fields_(value, std::move(path), error, Noun::kField, Absent::kError) {}

  template <class T, class... Bounds>
  void operator()(std::string_view name, T& out, Bounds... bounds) {
    if constexpr (std::same_as<T, RequestId>) {
      uint64_t id = 0;
      fields_.Get(name, id);
      out = RequestId{id};
    } else if constexpr (std::is_enum_v<T>) {
      int32_t number = 0;
      fields_.Get(name, number, 0, static_cast<int32_t>(std::to_underlying(bounds))...);
      out = static_cast<T>(number);
    } else if constexpr (std::same_as<T, float> || std::signed_integral<T>) {
      fields_.Get(name, out, static_cast<T>(bounds)...);
    } else if constexpr ((std::same_as<Bounds, Binary> || ...) || NumberList<T>) {
      GetBytes(name, out);
    } else if constexpr (std::same_as<T, bool> || std::same_as<T, uint64_t> || Text<T>) {
      fields_.Get(name, out);
    } else if constexpr (Optional<T>) {
      (*this)(name, out.emplace());
    } else if constexpr (List<T>) {
      GetList(name, out, static_cast<size_t>(bounds)...);
    } else {
      const Json* value = fields_.FindObject(name);
      if (value != nullptr) Unpacker(*value, fields_.PathOf(name), fields_.error()).GetStruct(out);
    }
  }
  template <class T>
  void IfAny(std::string_view name, T& out) {
    if (fields_.Has(name)) (*this)(name, out);
  }

  template <class T>
  void GetStruct(T& out) {
    if constexpr (Variant<T>) {
      int32_t kind = 0;
      fields_.Get("kind", kind, 0, int32_t{std::variant_size_v<T>} - 1);
      Choose(out, static_cast<size_t>(kind));
      std::visit([this](auto& alternative) { VisitFields(alternative, *this); }, out);
    } else {
      VisitFields(out, *this);
    }
  }

  // Makes `out` its alternative `index`.
  template <size_t kIndex = 0, class T>
  static void Choose(T& out, size_t index) {
    if constexpr (kIndex < std::variant_size_v<T>) {
      if (index != kIndex) return Choose<kIndex + 1>(out, index);
      out.template emplace<kIndex>();
    }
  }

 private:
  template <class T>
  void GetBytes(std::string_view name, T& out) {
    constexpr size_t kElement = sizeof(typename T::value_type);
    const Json* value = fields_.Find(name);
    if (value == nullptr) return;
    if (!value->is_binary()) return fields_.Reject(name, "must be binary");
    const auto& bytes = value->get_binary();
    if (bytes.size() % kElement != 0) return fields_.Reject(name, "does not contain whole elements");
    out.resize(bytes.size() / kElement);
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  template <class T>
  void GetList(std::string_view name, T& out, size_t max = std::numeric_limits<size_t>::max()) {
    const Json* list = fields_.FindArray(name);
    if (list == nullptr) return;
    if (list->size() > max) return fields_.Reject(name, "has too many elements");
    const std::string path = fields_.PathOf(name) + "[]";
    out.reserve(list->size());
    for (const Json& value : *list) {
      if (!fields_.ok()) return;
      if constexpr (Text<typename T::value_type>) {
        if (!value.is_string()) return fields_.Reject(name, "must be an array of strings");
        out.push_back(value.get_ref<const std::string&>());
      } else {
        Unpacker(value, path, fields_.error()).GetStruct(out.emplace_back());
      }
    }
  }

  Fields fields_;
};

}  // namespace quire::api::ipc
