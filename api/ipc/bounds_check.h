// Whether a struct that has VisitFields() keeps the bounds that the Unpacker of frame.cc will check: what a
// sender would be taken for a liar for, it does not send.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "api/base/ids.h"
#include "api/ipc/message_fields.h"
#include "api/ipc/model_fields.h"
#include "api/ipc/packer.h"

namespace quire::api::ipc {

class BoundsCheck {
 public:
  // The first member that is outside its bounds; empty: none.
  std::string_view breach() const { return breach_; }
  // As the receiver counts them (FrameBounds::values).
  size_t values() const { return values_; }

  template <class T, class... Bounds>
  void operator()(std::string_view name, const T& value, const Bounds&... bounds) {
    ++values_;  // the name
    if (!Check(value, bounds...) && breach_.empty()) breach_ = name;
  }
  template <class T>
  void IfAny(std::string_view name, const T& value) {
    if (!IsEmpty(value)) (*this)(name, value);
  }

  template <class T>
  void Put(const T& value) {
    ++values_;
    if constexpr (Variant<T>) {
      values_ += 2;  // its kind
      std::visit([this](const auto& alternative) { VisitFields(alternative, *this); }, value);
    } else {
      VisitFields(value, *this);
    }
  }

 private:
  template <class T, class... Bounds>
  bool Check(const T& value, const Bounds&... bounds) {
    if constexpr (Optional<T>) {
      return !value.has_value() || Check(*value);
    } else if constexpr (std::same_as<T, RequestId> || std::same_as<T, bool> || std::same_as<T, uint64_t> ||
                         (std::same_as<Bounds, Binary> || ...)) {
      ++values_;
      return true;
    } else if constexpr (std::is_enum_v<T>) {
      ++values_;
      return IsWithin<int64_t>(std::to_underlying(value), 0,
                               static_cast<int64_t>(std::to_underlying(bounds))...);
    } else if constexpr (std::is_arithmetic_v<T>) {
      ++values_;
      return IsWithin<T>(value, static_cast<T>(bounds)...);
    } else if constexpr (Text<T>) {
      ++values_;
      return ((value.size() <= static_cast<size_t>(bounds)) && ...);
    } else if constexpr (NumberList<T>) {
      ++values_;
      return ((value.size() <= static_cast<size_t>(bounds)) && ...) && AreFinite(value);
    } else if constexpr (List<T>) {
      ++values_;
      PutElements(value);
      return ((value.size() <= static_cast<size_t>(bounds)) && ...);
    } else {
      Put(value);
      return true;
    }
  }
  template <class T>
  static bool IsWithin(T value, T least = std::numeric_limits<T>::lowest(),
                       T most = std::numeric_limits<T>::max()) {
    return least <= value && value <= most;  // not for NaN
  }
  template <class T>
  static bool AreFinite(const T& numbers) {
    if constexpr (std::is_floating_point_v<typename T::value_type>)
      return std::ranges::all_of(numbers, [](auto number) { return std::isfinite(number); });
    return true;
  }
  template <class T>
  void PutElements(const T& list) {
    for (const auto& element : list) {
      if constexpr (Text<typename T::value_type>) {
        ++values_;
      } else {
        Put(element);
      }
    }
  }

  std::string_view breach_;
  size_t values_ = 0;
};

}  // namespace quire::api::ipc
